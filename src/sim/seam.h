/* seam.h - what a simulated host program needs beyond the port: poll. */
#ifndef FLI_SIM_SEAM_H
#define FLI_SIM_SEAM_H

#include <stdbool.h>
#include <stdint.h>

/* Waits until the descriptor of fli_wakefd_open is readable, or for `timeout_ns`. True: it is. */
bool fli_sim_poll(int fd, uint64_t timeout_ns);

#endif
