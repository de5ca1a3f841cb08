/* memory_room.h: memory that this process can still allocate. */
#ifndef BASE_MEMORY_ROOM_H
#define BASE_MEMORY_ROOM_H

#include <stdint.h>

/* Bytes until a limit of the machine, of a container or of the process itself stops or kills this
 * process; UINT64_MAX: no known limit. */
uint64_t memory_room(void);

#endif
