/* darwin_memory_room.c: memory that the system can give without compressing or swapping. */
#include "memory_room.h"

#include <mach/mach.h>
#include <sys/resource.h>

/* Free pages, and pages of files that can be dropped. (Free pages include those that were read
 * ahead.) A limit of the process's address space counts everything that is mapped, so it is not a
 * limit of memory. */
uint64_t memory_room(void) {
    vm_statistics64_data_t s;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    mach_port_t host = mach_host_self();
    kern_return_t result = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&s, &n);
    mach_port_deallocate(mach_task_self(), host);
    if (result != KERN_SUCCESS) return UINT64_MAX;
    uint64_t pages = (uint64_t)s.free_count + s.inactive_count + s.purgeable_count;
    return pages * vm_kernel_page_size;
}
