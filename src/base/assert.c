#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "pando: assertion failed: %s (%s:%d)\n", expression, file, line);
    abort();
}
