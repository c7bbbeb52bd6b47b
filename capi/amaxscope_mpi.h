/* A group of amaxscope.h over an MPI communicator. All of it is here and is compiled by the program, with its
 * own MPI: the library itself knows none. C99 or C++.
 *
 *   amaxscope_group* world;
 *   if (amaxscope_group_from_mpi(MPI_COMM_WORLD, &world) != AMAXSCOPE_OK) puts(amaxscope_last_error());
 *
 * The group is a duplicate: the program's own communicator is never used. MPI_Init or MPI_Init_thread comes
 * before; groups are freed before MPI_Finalize. */
#ifndef AMAXSCOPE_MPI_H
#define AMAXSCOPE_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "amaxscope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amaxscope_mpi_context {
  MPI_Comm comm;
  int* world_ranks;
  int pending; /* requests that have not completed */
} amaxscope_mpi_context;

static inline int amaxscope_mpi_dtype(amaxscope_dtype dtype, MPI_Datatype* type) {
  switch (dtype) {
    case AMAXSCOPE_F64:
      *type = MPI_DOUBLE;
      return MPI_SUCCESS;
    case AMAXSCOPE_F32:
      *type = MPI_FLOAT;
      return MPI_SUCCESS;
    case AMAXSCOPE_U32:
      *type = MPI_UINT32_T;
      return MPI_SUCCESS;
    case AMAXSCOPE_I32:
      *type = MPI_INT32_T;
      return MPI_SUCCESS;
    case AMAXSCOPE_U64:
      *type = MPI_UINT64_T;
      return MPI_SUCCESS;
    case AMAXSCOPE_I64:
      *type = MPI_INT64_T;
      return MPI_SUCCESS;
    default:
      return MPI_ERR_TYPE;
  }
}

static inline MPI_Op amaxscope_mpi_op(amaxscope_reduce_op op) {
  return op == AMAXSCOPE_SUM ? MPI_SUM : op == AMAXSCOPE_MIN ? MPI_MIN : MPI_MAX;
}

static inline int amaxscope_mpi_all_reduce(void* context, void* io, int64_t count, amaxscope_dtype dtype,
                                           amaxscope_reduce_op op) {
  MPI_Datatype type;
  const int known = amaxscope_mpi_dtype(dtype, &type);
  if (known != MPI_SUCCESS) return known;
  if (count > INT_MAX) return MPI_ERR_COUNT;
  return MPI_Allreduce(MPI_IN_PLACE, io, (int)count, type, amaxscope_mpi_op(op),
                       ((amaxscope_mpi_context*)context)->comm);
}

static inline int amaxscope_mpi_start_all_reduce(void* context, void* io, int64_t count,
                                                 amaxscope_dtype dtype, amaxscope_reduce_op op,
                                                 void** request) {
  amaxscope_mpi_context* own = (amaxscope_mpi_context*)context;
  MPI_Datatype type;
  MPI_Request* started;
  int result = amaxscope_mpi_dtype(dtype, &type);
  if (result != MPI_SUCCESS) return result;
  if (count > INT_MAX) return MPI_ERR_COUNT;
  started = (MPI_Request*)malloc(sizeof *started);
  if (started == NULL) return MPI_ERR_NO_MEM;
  result = MPI_Iallreduce(MPI_IN_PLACE, io, (int)count, type, amaxscope_mpi_op(op), own->comm, started);
  if (result != MPI_SUCCESS) {
    free(started);
    return result;
  }
  ++own->pending;
  *request = started;
  return MPI_SUCCESS;
}

static inline int amaxscope_mpi_test(void* context, void* request, int* done) {
  const int result = MPI_Test((MPI_Request*)request, done, MPI_STATUS_IGNORE);
  if (result == MPI_SUCCESS && *done) {
    free(request);
    --((amaxscope_mpi_context*)context)->pending;
  }
  return result;
}

static inline int amaxscope_mpi_all_gather(void* context, const void* in, void* out, size_t bytes_per_rank) {
  if (bytes_per_rank > INT_MAX) return MPI_ERR_COUNT;
  return MPI_Allgather(in, (int)bytes_per_rank, MPI_BYTE, out, (int)bytes_per_rank, MPI_BYTE,
                       ((amaxscope_mpi_context*)context)->comm);
}

static inline int amaxscope_mpi_broadcast(void* context, void* io, size_t bytes, int root) {
  char* next = (char*)io;
  while (bytes > 0) {
    const size_t part = bytes < INT_MAX ? bytes : INT_MAX;
    const int result = MPI_Bcast(next, (int)part, MPI_BYTE, root, ((amaxscope_mpi_context*)context)->comm);
    if (result != MPI_SUCCESS) return result;
    next += part;
    bytes -= part;
  }
  return MPI_SUCCESS;
}

static inline int amaxscope_mpi_barrier(void* context) {
  return MPI_Barrier(((amaxscope_mpi_context*)context)->comm);
}

static inline void amaxscope_mpi_abort(void* context, int status, const char* reason) {
  (void)context;
  fprintf(stderr, "%s\n", reason);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, status);
}

static inline void amaxscope_mpi_release(void* context) {
  amaxscope_mpi_context* own = (amaxscope_mpi_context*)context;
  int finalized = 0;
  MPI_Finalized(&finalized);
  /* With a request that never completed the communicator is left as it is: freeing it would wait. */
  if (own->pending == 0) {
    if (!finalized && own->comm != MPI_COMM_NULL) MPI_Comm_free(&own->comm);
    free(own->world_ranks);
    free(own);
  }
}

static inline int amaxscope_mpi_split(void* context, int color, int key, amaxscope_collectives* out);

/* Takes comm over, also when it fails. */
static inline int amaxscope_mpi_fill(MPI_Comm comm, amaxscope_collectives* out) {
  amaxscope_mpi_context* own = (amaxscope_mpi_context*)calloc(1, sizeof *own);
  MPI_Group members, world;
  int* ranks = NULL;
  int result, i;
  result = own == NULL ? MPI_ERR_NO_MEM : MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (result == MPI_SUCCESS) result = MPI_Comm_rank(comm, &out->rank);
  if (result == MPI_SUCCESS) result = MPI_Comm_size(comm, &out->ranks);
  if (result == MPI_SUCCESS) {
    ranks = (int*)malloc((size_t)out->ranks * sizeof *ranks);
    own->world_ranks = (int*)malloc((size_t)out->ranks * sizeof *own->world_ranks);
    if (ranks == NULL || own->world_ranks == NULL) result = MPI_ERR_NO_MEM;
  }
  if (result == MPI_SUCCESS) {
    for (i = 0; i < out->ranks; ++i) ranks[i] = i;
    MPI_Comm_group(comm, &members);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    result = MPI_Group_translate_ranks(members, out->ranks, ranks, world, own->world_ranks);
    MPI_Group_free(&members);
    MPI_Group_free(&world);
  }
  free(ranks);
  if (result != MPI_SUCCESS) {
    if (own != NULL) free(own->world_ranks);
    free(own);
    MPI_Comm_free(&comm);
    return result;
  }
  own->comm = comm;
  out->size = sizeof *out;
  out->world_ranks = own->world_ranks;
  out->context = own;
  out->all_reduce = amaxscope_mpi_all_reduce;
  out->all_gather = amaxscope_mpi_all_gather;
  out->broadcast = amaxscope_mpi_broadcast;
  out->barrier = amaxscope_mpi_barrier;
  out->abort = amaxscope_mpi_abort;
  out->split = amaxscope_mpi_split;
  out->release = amaxscope_mpi_release;
  out->start_all_reduce = amaxscope_mpi_start_all_reduce;
  out->test = amaxscope_mpi_test;
  return MPI_SUCCESS;
}

static inline int amaxscope_mpi_split(void* context, int color, int key, amaxscope_collectives* out) {
  MPI_Comm part;
  const int result =
      MPI_Comm_split(((amaxscope_mpi_context*)context)->comm, color < 0 ? MPI_UNDEFINED : color, key, &part);
  if (result != MPI_SUCCESS || part == MPI_COMM_NULL) return result;
  return amaxscope_mpi_fill(part, out);
}

/* Collective over comm. */
static inline amaxscope_status amaxscope_group_from_mpi(MPI_Comm comm, amaxscope_group** group) {
  amaxscope_collectives collectives = {0};
  MPI_Comm own;
  int initialized = 0;
  MPI_Initialized(&initialized);
  /* Zero ranks are refused with a text by the function below. */
  if (initialized && MPI_Comm_dup(comm, &own) == MPI_SUCCESS) amaxscope_mpi_fill(own, &collectives);
  collectives.size = sizeof collectives;
  return amaxscope_group_from_callbacks(&collectives, group);
}

#ifdef __cplusplus
}
#endif

#endif
