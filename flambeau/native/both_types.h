// Includes a source a second and a third time, for float and double: `#define BODY "its name"` first. Its part below `#else` is
// compiled with the element type T, whose SUFFIX the names of its functions have: X(name) is name_f32 or name_f64.
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define X(name) JOIN(name, SUFFIX)

#define T float
#define SUFFIX f32
#include BODY
#undef T
#undef SUFFIX
#define T double
#define SUFFIX f64
#include BODY
