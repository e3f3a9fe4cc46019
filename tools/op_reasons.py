"""Why an op of TensorFlow 2.21 has no kernel here. docs/ops.md lists the reasons with their ops;
tests/differential/run_reasons.py fails for an op that TensorFlow's CPU runs and that has neither a
kernel nor a reason here, and for a reason that names no op.

A row is a reason and patterns of names (regular expressions that match the whole name). The first
row that matches counts. run_reasons.py checks those of NO_KERNEL and DEPRECATED with the wheel.
"""
import re

GPUS = "GPUs only: TensorFlow has no kernel for CPUs"
DTENSOR = "DTensor's own: only its compiler makes it"
NOWHERE = "without a kernel for CPUs in TensorFlow 2.21 either"
NO_KERNEL = (GPUS, DTENSOR, NOWHERE)  # of TensorFlow, for CPUs
DEPRECATED = "deprecated: TensorFlow refuses it in a graph of today's version"

REASONS = (
    ("XLA's own: only what its compiler makes of a graph has it",
     (r"_?Xla\w*", r"TopK(Unique|WithUnique)", r"MakeUnique", r"KthOrderStatistic",
      r"\w*XlaConcatND", r"\w*XlaSplitND", r"CollectivePermute", r"GetMinibatch\w*",
      r"ConvertTo\w*Coo\w*", r"GetStatsFromListOf\w*", r"\w*SparseCore\w*", r"GlobalIterId",
      r"StoreMinibatch\w*")),
    ("TPUs only",
     (r"\w*T[Pp][Uu]\w*", r"(Infeed|Outfeed)\w+", r"Prelinearize\w*", r"CrossReplicaSum",
      r"AllToAll", r"WorkerHeartbeat", r"ComputeDedup\w*", r"(Merge|Split)DedupData",
      r"DummyIterationCounter", r"UpdateTaskIdAndGlobalCoreArray")),
    (GPUS,
     (r"_?Nccl\w*", r"CudnnRNN\w*", r"CTCLossV2", r"GenerateBoundingBoxProposals",
      r"MaxPoolGradGradWithArgmax", r"SparseMatrix(Softmax|SoftmaxGrad|Add|Mul|Zeros)")),
    ("made of a graph by TensorFlow's optimizer, or of a trained one by Intel's tools: mostly "
     "oneDNN computes it",
     (r"_*Mkl\w*", r"_Fused\w*", r"_Quantized\w*",
      r"Quantized(Conv2D|MatMul|DepthwiseConv2D)(And|With|Per)\w*", r"QuantizedDepthwiseConv2D",
      r"QuantizedConcatV2")),
    (DTENSOR,
     (r"DTensor\w*", r"CopyToMesh\w*", r"Relayout\w*", r"_?Mlir\w*")),
    ("an internal node of TensorFlow's runtime, which no client's graph may hold",
     (r"_(Arg|Retval|DeviceArg|DeviceRetval|EagerConst|If|While|Send|Recv|HostSend|HostRecv|"
      r"HostCast|ListToArray|ArrayToList|ParallelConcat\w+|ReadVariablesOp|VarHandlesOp|"
      r"ScopedAllocator\w*|TensorToHashBucketFast|UnaryOpsComposition|SetGlobalTPUArray)",
      r"Send", r"Recv", r"HostConst", r"CustomAggregator", r"CalibrationStatisticsSaver")),
    ("for tests of TensorFlow itself",
     (r"(A|B|Attr\w*|Binary|ComplexStruct|ConstructionFails|CopyOp|DefaultAttrs|DevicePlacementOp|"
      r"DtypeWithDefaultOp|Fact|FiveFloatOutputs|Float(In|Out)put\w*|Foo\d|Func(List)?Attr|"
      r"GetDeadline|GraphDefVersion|InPolymorphicTwice|Int64Output|Int(Attr|In|Out)\w*|"
      r"KernelLabel\w*|List(In|Out)put|MixedStruct|N(In|Polymorphic|Ints|InTw)\w*|None|Old|"
      r"OpWith\w+|OutT|OutTypeList\w*|Polymorphic\w*|Ref(In|Out)\w*|RequiresOlderGraphVersion|"
      r"Reserved(Attr|Input)|Resource(Create|Initialized|Using)\w*|Restrict|Simple(Struct)?|"
      r"Sleep(Identity)?Op|StringListAttr|StubResourceHandleOp|TestAttr|TestStringOutput|Two\w+|"
      r"TypeList\w*|Unary|CheckPinned|Risc\w+)",
      r"(Experimental)?(AssertNext|AssertPrev|Sleep)Dataset")),
    (DEPRECATED,
     (r"AdjustContrast", r"Batch(I?)FFT(2D|3D)?", r"RandomCrop", r"TileGrad", r"NegTrain",
      r"Skipgram", r"MatrixExponential", r"StatefulStandardNormal")),
    ("of libraries that TensorFlow 2.21 no longer has (estimators, boosted trees)",
     (r"\w*BoostedTrees\w*", r"Sdca\w+")),
    ("needs a library that is not part of Millrace (LMDB, SQLite, JPEG XL, WebP)",
     (r"\w*LMDB\w*", r"\w*SqlDataset", r"CreateSummaryDbWriter", r"DecodeJxl", r"DecodeWebP")),
    ("TensorFlow cannot run it either: its kernel asks for an input that the op does not have",
     (r"MutableDenseHashTable",)),
    ("tf.data service: a dispatcher and workers of its own",
     (r"DataServiceDataset\w*", r"RegisterDataset\w*", r"DistributedSave", r"CompressElement",
      r"UncompressElement", r"ListSnapshotChunksDataset", r"SnapshotChunkDataset",
      r"DatasetFingerprint")),
    ("its state is in an eager client's process: graphs of sessions do not have it",
     (r"Anonymous(MemoryCache|RandomSeedGenerator|SeedGenerator)",
      r"Delete(MemoryCache|RandomSeedGenerator|SeedGenerator)", r"ShuffleDatasetV2",
      r"MakeWeakResourceHandle", r"IsResourceHandleRefCounting", r"DeleteRpcFutureResource",
      r"Rpc\w+", r"FileSystemSetConfiguration", r"IsTensorFloat32Enabled")),
    ("statistics of tf.data, which tf.data no longer offers",
     (r"\w*StatsAggregator\w*", r"IteratorGetModelProto")),
    ("the debugger's: no client of 2.21 makes it", (r"DebugIdentityV3", r"DumpTensor")),
    ("an exchange among several devices by a collective: groups of one are supported, and a "
     "receiver needs a sender",
     (r"CollectiveBcastRecv(V2)?",)),
    ("an exchange by a communicator, a resource that all devices make together; the older ops of "
     "collectives have kernels",
     (r"CollectiveReduceV3", r"CollectiveAllToAllV3", r"CollectiveInitializeCommunicator")),
    ("StableHLO's quantization: its converter makes it, for graphs that it compiles",
     (r"Uniform(Dequantize|Quantize\w*|Requantize)",)),
    ("the numbers that a seed or a table of directions gives in TensorFlow are not reproduced yet",
     (r"StatelessParameterizedTruncatedNormal", r"SobolSample")),
    ("of the optimizer's rewrites: no client of 2.21 makes it",
     (r"FusedPadConv2D", r"FusedResizeAndPadConv2D", r"ChooseFastestBranchDataset",
      r"FilterByLastComponentDataset")),
    ("reads elements of datasets by their index, which datasets here do not offer",
     (r"GetElementAtIndex", r"GlobalShuffleDataset", r"IndexFlatMapDataset",
      r"WeightedFlatMapDataset")),
    ("rewrites the pipeline before it, which a worker does not know; RebatchDatasetV2 has a kernel",
     (r"(Experimental)?RebatchDataset", r"ComputeBatchSize")),
    ("needs a graph that the step computes: the compiler inlines a pipeline before the step",
     (r"DatasetFromGraph",)),
    ("needs the descriptors of a client's messages at run time",
     (r"DecodeProtoV2", r"EncodeProto")),
    ("a factorization of sparse matrices, with an order that TensorFlow's library chooses",
     (r"SparseMatrixOrderingAMD", r"SparseMatrixSparseCholesky")),
    ("waits for a kernel: no program of graph mode was met that has it",
     (r"ApproxTopK", r"AudioMicrofrontend", r"CompositeTensorVariant\w+", r"GetSessionHandleV2",
      r"ImmutableConst", r"StochasticCastToInt", r"WindowOp")),
    (NOWHERE,
     (r"Conv2DBackprop(Filter|Input)V2", r"I?R?FFTND", r"QuantizedReluX", r"Segment\w+V2")),
    ("a snapshot of the first version: SnapshotDatasetV2 has a kernel",
     (r"SnapshotDataset", r"SnapshotDatasetReader", r"SnapshotNestedDatasetReader")),
)
_COMPILED = [(reason, [re.compile(pattern) for pattern in patterns])
             for reason, patterns in REASONS]


def reason_of(op):
    """The reason, or None."""
    return next((reason for reason, patterns in _COMPILED
                 if any(pattern.fullmatch(op) for pattern in patterns)), None)


def by_reason(ops):
    """{reason: sorted ops}, in the order of the rows; ops without a reason are left out."""
    found = {reason: [] for reason, _ in REASONS}
    for op in sorted(ops):
        reason = reason_of(op)
        if reason:
            found[reason].append(op)
    return found
