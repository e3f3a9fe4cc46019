/* Writes the files that TensorFlow's DebugDumpDir reads:
 *
 *   ROOT/_tfdbg_device_,job_ps,replica_0,task_0,device_CPU_0/
 *     SCOPE/NODE_SLOT_DebugIdentity_MICROSECONDS     an Event, whose Summary has the tensor
 *     _tfdbg_graph_hashNUMBER_MICROSECONDS           an Event with the GraphDef of the device
 *   ROOT/_tfdbg_core_metadata_sessionrun…            an Event with the names of feeds and fetches
 *
 * A file is one Event, without the framing of records. Files are below the task's roots. */
#ifndef MILLRACE_KERNELS_HOST_DEBUG_DEBUG_FILE_H
#define MILLRACE_KERNELS_HOST_DEBUG_DEBUG_FILE_H

#include "common/base/status.h"
#include "common/base/str.h"

/* Writes an event below the directory of a URL file://ROOT, in the device's directory unless the
 * device is "". A number is added to the name of a file that exists. Blocks. Any thread. */
struct status *debug_file_write(struct span url, struct span device, const char *name,
                                struct span event) MUST_USE;

#endif
