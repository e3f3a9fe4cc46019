/* CUDA graphs: not simulated yet. Every call says so. */
#include "tests/cuda/sim/driver.h"

#define NOT_SIMULATED(symbol, arguments) \
    CUresult symbol arguments {          \
        BEGIN(symbol);                   \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }

NOT_SIMULATED(cuStreamBeginCapture_v2, (CUstream stream, unsigned mode))
NOT_SIMULATED(cuStreamEndCapture, (CUstream stream, CUgraph *ret_graph))
NOT_SIMULATED(cuGraphInstantiateWithFlags,
              (CUgraphExec * ret_exec, CUgraph graph, unsigned long long flags))
NOT_SIMULATED(cuGraphLaunch, (CUgraphExec exec, CUstream stream))
NOT_SIMULATED(cuGraphGetNodes, (CUgraph graph, CUgraphNode *ret_nodes, size_t *n))
NOT_SIMULATED(cuGraphExecKernelNodeSetParams_v2,
              (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters))
NOT_SIMULATED(cuGraphExecDestroy, (CUgraphExec exec))
NOT_SIMULATED(cuGraphDestroy, (CUgraph graph))
