/* seam.h - a replacement of poll() for simulated host programs. All other functions that they need are in the simulated
 * port. */
#ifndef FLI_SIM_SEAM_H
#define FLI_SIM_SEAM_H

#include <stdbool.h>
#include <stdint.h>

/* Waits until the descriptor of fli_wakefd_open() is readable or until `timeout_ns` has passed. Returns true if the
 * descriptor is readable. */
bool fli_sim_poll(int fd, uint64_t timeout_ns);

#endif
