/* arpa/inet.h: addresses, for tests of Windows. */
#include <sys/socket.h>
