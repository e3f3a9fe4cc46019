"""What docs/gpu-ops.md says: which of the ops that graphs need most a GPU computes.

FIRST holds the ops in the order of need, each with the number of TensorFlow's own graph-mode tests
that run it (7,761 were counted). Ops without a number train models that those tests do not. The
rest is facts: what tests/tools/dump_tables prints of TensorFlow's rows for GPUs and of ours.
"""
import re

FIRST = """
Const:7563 Identity:2635 AddV2:1989 Mul:1896 Reshape:1886 NoOp:1735 Pack:1688 ConcatV2:1670
StridedSlice:1670 Cast:1518 Sub:1490 Fill:1270 Range:1216 Merge:1188 Switch:1187 Less:1032
ExpandDims:870 GatherV2:761 Equal:757 Assert:721 Sum:721 All:679 Maximum:661 MatrixSetDiagV3:613
VarHandleOp:597 Squeeze:595 AssignVariableOp:593 Assign:556 VariableV2:555 Minimum:547 Tile:539
Shape:536 RealDiv:506 ReadVariableOp:478 LessEqual:467 Select:435 Greater:406 GreaterEqual:406
Prod:402 Where:399 Max:387 Enter:376 Exit:370 NextIteration:366 LoopCond:364 Neg:344 Cumsum:328
MatrixDiagV3:286 AddN:283 TensorArrayV3:278 BroadcastTo:275 Transpose:274 LogicalAnd:257
TensorArrayWriteV3:255 RandomUniform:234 TensorArrayGatherV3:230 PlaceholderWithDefault:225
Log:213 RaggedRange:213 MatMul:202 AssignAdd:200 DivNoNan:190 Rank:190 Slice:188 SaveV2:185
SelectV2:178 FIFOQueueV2:169 QueueEnqueueManyV2:167 UnsortedSegmentSum:167 Exp:163
LogicalNot:161 QueueEnqueueV2:150 StatelessWhile:146 QueueCloseV2:136 FloorMod:135
TensorArrayReadV3:134 Pow:133 QueueDequeueV2:130 Abs:128 AssignAddVariableOp:128
TensorArrayScatterV3:120 Square:118 Size:117 EmptyTensorList:116 IsVariableInitialized:115
QueueDequeueManyV2:114 StopGradient:108 TensorListPushBack:103 RandomStandardNormal:102
RestoreV2:99 ZerosLike:97 FloorDiv:96 TensorListReserve:94 BiasAdd:90 LookupTableFindV2:90
Sqrt:89 TensorListPopBack:88 StatelessIf:86 StaticRegexFullMatch:86 Lgamma:85 ShardedFilename:83
StringJoin:83 TensorListStack:82 MergeV2Checkpoints:81 TensorListSetItem:80 UnicodeEncode:80
Mean:79 RandomShuffleQueueV2:79 NotEqual:76 TensorListGetItem:76 LookupTableSizeV2:73 Pad:73
BatchMatMulV2:72 BroadcastArgs:72 HashTableV2:71 LogicalOr:71 StackV2:71 Conv2D:70 RefSwitch:70
StackPushV2:70 TensorListFromTensor:69 DenseBincount:68 ShapeN:68 RaggedGather:67 StackPopV2:65
PaddingFIFOQueueV2:64 ResourceGather:63 Split:62 DiagPart:61 UnsortedSegmentMax:61
BatchToSpaceND:60 SpaceToBatchND:60 Substr:60 Sigmoid:59 Sign:58 Tanh:58 Log1p:57 ScatterNd:57
UnicodeDecode:57 Unpack:57 IsFinite:56 SquaredDifference:56 Rsqrt:54 PartitionedCall:48
TakeManySparseFromTensorsMap:48 While:48 BroadcastGradientArgs:47 DynamicPartition:47
MatrixBandPart:47 Relu:47 StridedSliceGrad:47 ReverseV2:45 Conv2DBackpropInput:42
ConcatOffset:41 LogSoftmax:41 TopKV2:41 Unique:41 SoftmaxCrossEntropyWithLogits:39
TruncatedNormal:38 BiasAddGrad:37 GatherNd:37 RandomUniformInt:35 Conv2DBackpropFilter:34
Softmax:34 SparseSoftmaxCrossEntropyWithLogits:34 OneHot:33 Min:31 SparseToDense:31
VarIsInitializedOp:31 SparseReshape:29 ReluGrad:25 ResourceApplyAdam:25 MaxPool:24
Multinomial:23 PadV2:22 ResourceScatterAdd:21 AvgPool:20 DynamicStitch:17
ResourceApplyGradientDescent:17 SegmentSum:17 Softplus:17 SparseSegmentMean:17 Any:16 ArgMax:16
ArgMin:15 FusedBatchNormV3:15 SigmoidGrad:15 DepthwiseConv2dNative:14 ResourceScatterUpdate:14
TanhGrad:14 AssignSub:13 ReverseSequence:13 SparseSegmentSum:13 ResourceScatterSub:12
MaxPoolGrad:10 SplitV:10 Elu:9 L2Loss:9 CTCLoss:8 EluGrad:8 FusedBatchNormGradV3:8 MirrorPad:8
InTopKV2:7 LeakyRelu:7 RandomShuffle:7 ResourceApplyAdagrad:7 ResourceApplyMomentum:7
ScatterAdd:7 ApplyGradientDescent:6 AvgPoolGrad:6 PreventGradient:6
DepthwiseConv2dNativeBackpropFilter:5 LeakyReluGrad:5 Relu6:5 ApplyAdam:4
DepthwiseConv2dNativeBackpropInput:4 Relu6Grad:4 SparseTensorDenseMatMul:4 LRN:3
ResourceApplyRMSProp:3 ComputeAccidentalHits:2 LRNGrad:2 ScatterSub:2 ApplyAdagrad:1
LogUniformCandidateSampler:1 SparseApplyMomentum:1 SparseSegmentSqrtN:1 ApplyAdadelta ApplyFtrl
ApplyMomentum ApplyRMSProp BlockLSTM GRUBlockCell LSTMBlockCell LearnedUnigramCandidateSampler
ResourceApplyAdagradV2 ResourceApplyKerasMomentum ResourceSparseApplyAdagradV2 ScatterUpdate
SoftplusGrad SparseApplyAdagrad SparseApplyFtrl UniformCandidateSampler
"""
# Ops of functions have no kernel: the master puts the nodes of their functions in their place, and
# each of these has a device of its own.
REPLACED = re.compile(r"(Stateless|Stateful)?(If|While|Case|PartitionedCall)$")
HERE, HOST, REPLACES, MISSING, NOWHERE = "here", "host", "replaced", "missing", "nowhere"
WORDS = {HERE: "yes", HOST: "on the CPU, with values in host memory", MISSING: "**missing**",
         REPLACES: "the nodes of its functions", NOWHERE: "none in TensorFlow either"}


def first_ops():
    """[(op, number of tests or "")] in the order of need."""
    return [tuple(f"{word}:".split(":")[:2]) for word in FIRST.split()]


def rows_by_op(rows):
    found = {}
    for row in rows:
        found.setdefault(row["op"], []).append(row)
    return found


def union(rows):
    """{type attr: types} of the rows of an op together. A row that does not limit an attr accepts
    all of its types, so the attr is left out."""
    attrs = set.intersection(*(set(row["types"]) for row in rows)) if rows else set()
    return {attr: {t for row in rows for t in row["types"][attr]} for attr in attrs}


def missing_types(facts, rows):
    """{type attr: types} that TensorFlow's rows of an op accept and ours do not."""
    theirs, ours = union(facts), union(rows)
    gaps = {attr: theirs[attr] - ours.get(attr, theirs[attr]) for attr in theirs}
    return {attr: types for attr, types in sorted(gaps.items()) if types}


class Rows:
    """TensorFlow's rows for GPUs beside ours; tables: what dump_tables prints."""

    def __init__(self, tables):
        self.facts, self.ours = rows_by_op(tables["gpu_facts"]), rows_by_op(tables["gpu"])
        self.supported = {op["name"] for op in tables["ops"]}

    def state(self, op):
        """HERE: a GPU computes it. HOST: all of its rows have their values in host memory.
        REPLACES: the master replaces it. MISSING: only TensorFlow has a row. NOWHERE: neither."""
        if op in self.ours:
            return HOST if all(row["host"] for row in self.ours[op]) else HERE
        if REPLACED.match(op) and op in self.facts and op in self.supported:
            return REPLACES
        return MISSING if op in self.facts else NOWHERE

    def missing_types(self, op):
        return missing_types(self.facts.get(op, []), self.ours[op]) if op in self.ours else {}

    def beyond(self, first):
        """(the ops of TensorFlow's GPUs that are not in `first`, those of them that are missing
        here although a CPU computes them)."""
        others = sorted(set(self.facts) - first)
        return others, [op for op in others
                        if op in self.supported and self.state(op) == MISSING]


def count(rows, ops):
    """{state: number of ops}."""
    states = [rows.state(op) for op in ops]
    return {state: states.count(state) for state in WORDS}


def page(tables, show_types):
    """The text of docs/gpu-ops.md. show_types(types) names a set of types."""
    rows, first = Rows(tables), first_ops()
    n = count(rows, [op for op, _ in first])
    there = len(first) - n[NOWHERE]
    here = there - n[MISSING]
    n_missing = n[MISSING] or "None"
    out = ["# Ops on a GPU\n\n",
           f"The {len(first)} ops that graphs need most, most needed first. TensorFlow 2.21 has a "
           f"GPU row for {there} of them.\n"
           f"**Here {here} of those have one**: {n[HERE]} are computed on the GPU, {n[HOST]} keep "
           f"all values in host memory, as\n"
           f"in TensorFlow, so the CPU computes them under the GPU's name, and {n[REPLACES]} are "
           f"replaced by the nodes\n"
           f"of their functions, which have devices of their own. {n_missing} are missing. "
           f"[gpu.md](gpu.md) says more.\n\n"
           "**Tests** counts those of TensorFlow's own graph-mode tests that run the op, of 7,761. "
           "An op without\n"
           "a number trains models that those tests do not. **Types missing** are those that "
           "TensorFlow's rows\naccept and ours do not.\n\n"
           "| op | tests | on a GPU | types missing |\n|---|---|---|---|\n"]
    for op, tests in first:
        gaps = "; ".join(f"{attr}: {show_types(types)}"
                         for attr, types in rows.missing_types(op).items())
        out.append(f"| `{op}` | {tests} | {WORDS[rows.state(op)]} | {gaps} |\n")
    others, missing = rows.beyond({op for op, _ in first})
    out.append("\n## The other ops\n\n"
               f"TensorFlow has GPU rows for {len(others)} more ops. Of those "
               f"that a CPU computes here, {len(missing)} are missing\non a GPU:\n\n"
               f"{', '.join(f'`{op}`' for op in missing) or 'none'}.\n")
    return "".join(out)
