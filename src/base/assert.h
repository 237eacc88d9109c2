/*
 * assert.h - pando_assert is always on and must be cheap; pando_dassert is on in debug builds and
 * may be as dear as it likes. Neither is for bytes from outside (remote memory, sockets, files):
 * those are validated and answered with a status.
 */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

_Noreturn void assert_failed(const char *expression, const char *file, int line);

#define pando_assert(expression)                                                                   \
    ((expression) ? (void)0 : assert_failed(#expression, __FILE__, __LINE__))

#ifdef PANDO_DEBUG
#define pando_dassert(expression) pando_assert(expression)
#else
#define pando_dassert(expression) ((void)sizeof(!(expression)))
#endif

#endif
