/* A group of amaxscope.h over an NCCL communicator: libamaxscope_nccl.so, which is there where amaxscope was
 * built with NCCL (docs/nccl.md). C99 or C++.
 *
 *   amaxscope_group* world;
 *   if (amaxscope_group_from_nccl(comm, NULL, &world) != AMAXSCOPE_OK) puts(amaxscope_last_error());
 *
 * Tensors of the communicator's device are reduced where they are, on their stream, and the host does not
 * wait; what is on the host goes over page-locked memory. */
#ifndef AMAXSCOPE_NCCL_H
#define AMAXSCOPE_NCCL_H

#include <nccl.h>

#include "amaxscope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amaxscope_nccl_options {
  size_t size;             /* sizeof(amaxscope_nccl_options) */
  const int* world_ranks;  /* the rank in the job of each of its ranks; NULL: 0 .. ranks-1 */
  double deadline_seconds; /* how long the host waits for other ranks; 0: 600 */
  /* Ends the whole job with this status and does not return; NULL: prints the reason and ends the process. */
  void* abort_context;
  void (*abort)(void* context, int status, const char* reason);
} amaxscope_nccl_options;

/* options NULL: the defaults. A communicator is split off, so that nothing of the library ever happens on the
 * program's own. Collective over comm, and not while another operation is being called on it; comm may be
 * destroyed afterwards. The group is freed by amaxscope_group_free, before the device is reset. NCCL 2.18 or
 * newer. */
AMAXSCOPE_API amaxscope_status amaxscope_group_from_nccl(ncclComm_t comm,
                                                         const amaxscope_nccl_options* options,
                                                         amaxscope_group** group);

#ifdef __cplusplus
}
#endif

#endif
