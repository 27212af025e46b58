/* operators.h is C: this is compiled as C99 and linked with the library. */
#include "../operators.h"

int vision_interface_seen_from_c(void) { return vision_interface() == VISION_INTERFACE ? VISION_INTERFACE : -1; }
