// The number of threads, for all native code.
#include "runtime.h"

int fl_threads = 1;

//: fl_set_threads(i)
void fl_set_threads(int n) { fl_threads = n; }

//: i fl_get_threads()
int fl_get_threads(void) { return fl_threads; }
