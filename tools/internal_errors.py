"""Where the code says INTERNAL, and why. INTERNAL is for our own broken invariants: what a client
did wrong has another code (TensorFlow's, where it has one). Only broken calls of gRPC provoke it,
as they do at TensorFlow's server; docs/compatibility.md has the table of the classes, by which a
reader of an error finds its cause. check.py compares this list with the source, and run_wrong.py
fails when one of its requests gets INTERNAL."""

# file: (how many times, why)
REVIEWED = {
    "client/c_api_session.c": (2, "a server's reply that the library cannot read"),
    "client/step_call.c": (2, "a server's reply that the library cannot read"),
    "common/io/inflate.c": (1, "zlib does not start"),
    "kernels/cpu/nn/conv_onednn.c": (1, "oneDNN fails, for another reason than memory"),
    "kernels/cuda/blas.c": (1, "cuBLAS fails"),
    "kernels/cuda/compiler.c": (1, "NVRTC fails, which the log tells, and no client"),
    "kernels/cuda/dnn_descriptors.c": (1, "cuDNN fails"),
    "kernels/cuda/driver.c": (1, "the CUDA driver fails, for another reason than memory"),
    "kernels/cuda/gpu_graphs.c": (2, "the CUDA driver captures something else; it is only logged"),
    "kernels/cuda/gpu_segments.c": (1, "never; it is only logged"),
    "kernels/cuda/gpu_memory.c": (1, "the CUDA driver names sizes that cannot be"),
    "kernels/host/files/checkpoint_message.c": (1, "a task's answer is malformed"),
    "kernels/host/files/checkpoint_stream.c": (1, "a task's answer lacks its checksum"),
    "master/cluster/tasks_status.c": (1, "a task's status is malformed"),
    "master/compile/graph_verify.c": (10, "a pass has broken an invariant; debug builds only"),
    "master/compile/inline/pass_functions.c": (
        1, "a function that kernels call, all of whose nodes are put on one device, is on several "
           "or on none"),
    "master/compile/place/place.c": (1, "a graph was placed by another table of devices"),
    "master/session/executable.c": (3, "a task's reply is malformed; a partition is on a task that "
                                       "the table does not have"),
    "master/step/step_parts.c": (5, "a task's reply is malformed"),
    "rpc/grpc/grpc_client.c": (2, "the answer of a server that is not gRPC: the code that gRPC's "
                                  "mapping of HTTP codes has; and a stream that ends early"),
    "rpc/grpc/grpc_connection.c": (1, "the HTTP/2 library makes no frames"),
    "rpc/grpc/grpc_inflate.c": (1, "gRPC's code for corrupt compressed data, which a client can "
                                   "provoke, also at TensorFlow's server"),
    "rpc/grpc/grpc_receive.c": (6, "gRPC's code for messages that are not framed as gRPC says, "
                                   "which a client can provoke, also at TensorFlow's server"),
    "rpc/grpc/grpc_session.c": (1, "gRPC's code for a stream that was reset"),
    "rpc/tls/tls_certs.c": (1, "OpenSSL makes no certificate"),
    "worker/exchange/peer_call.c": (1, "a task's reply is malformed"),
    "worker/exchange/rendezvous_pregrant.c": (1, "a task announces an edge twice"),
    "worker/exchange/rendezvous_step.c": (4, "the partitions of a graph do not fit each other"),
    "worker/exchange/rendezvous_wire.c": (2, "a task sends or announces an edge twice"),
    "worker/executor/executor_device.c": (1, "a value is where its plan has no device"),
}
FOLDERS = ("client", "common", "kernels", "master", "rpc", "worker")
