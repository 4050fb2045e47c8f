/* seam.h - a poll() for simulated host programs; everything else they need is in the port. */
#ifndef FLI_SIM_SEAM_H
#define FLI_SIM_SEAM_H

#include <stdbool.h>
#include <stdint.h>

/* Waits until the descriptor of fli_wakefd_open() is readable or `timeout_ns` has passed. Returns true if it is
 * readable. */
bool fli_sim_poll(int fd, uint64_t timeout_ns);

#endif
