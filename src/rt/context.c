/*
 * context.c - making and switching contexts, and telling the sanitizers about it.
 */
#include <string.h>

#include "base/assert.h"
#include "rt/rt_int.h"

#ifdef RT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef RT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)

/*
 * Saves the frame pointer and the place to go on at, exchanges the stack pointers, and jumps to where
 * the other stack was left; the compiler saves what else it needs around it, since everything is
 * clobbered. There is no call and no return: the processor's return stack stays in step with the
 * calls around this, which are the same in every task. The red zone below the stack pointer belongs
 * to the compiler and is stepped over. MXCSR and the x87 control word are not switched: nobody here
 * changes them.
 */
static inline __attribute__((always_inline)) void machine_switch(struct rt_context *from,
                                                                 struct rt_context *to)
{
    void **save = &from->sp;
    void *load = to->sp;
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
                     "pushq %%rbp\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "movq %%rsp, (%[save])\n\t"
                     "movq %[load], %%rsp\n\t"
                     "popq %%rax\n\t"
                     "jmp *%%rax\n"
                     "1:\n\t"
                     "popq %%rbp\n\t"
                     "leaq 128(%%rsp), %%rsp\n\t"
                     : [save] "+D"(save), [load] "+S"(load)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
}

static void machine_make(struct rt_context *context, void *stack, size_t bytes, void (*entry)(void))
{
    /* The address jumped to, and a zero where a caller's return address would be: at the entry the
     * stack is as after a call, 8 bytes off a multiple of 16. */
    uint64_t *frame = (uint64_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)15) - 2;
    frame[0] = (uint64_t)(uintptr_t)entry;
    frame[1] = 0;
    context->sp = frame;
}

#elif defined(__aarch64__)

void rt_switch(void **save_sp, void *load_sp);

static void machine_make(struct rt_context *context, void *stack, size_t bytes, void (*entry)(void))
{
    enum { WORDS = 20, ENTRY = 11 }; /* x30 is where the branch goes */
    uint64_t *frame = (uint64_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)15) - WORDS;
    memset(frame, 0, WORDS * sizeof(*frame));
    frame[ENTRY] = (uint64_t)(uintptr_t)entry;
    context->sp = frame;
}

static void machine_switch(struct rt_context *from, struct rt_context *to)
{
    rt_switch(&from->sp, to->sp);
}

#else /* any other machine: slower, but the same */

#include <stdlib.h>
#include <ucontext.h>

static void machine_make(struct rt_context *context, void *stack, size_t bytes, void (*entry)(void))
{
    /* The ucontext_t lies at the bottom of the stack it describes. */
    ucontext_t *machine = stack;
    getcontext(machine);
    machine->uc_stack.ss_sp = (char *)stack + sizeof(*machine);
    machine->uc_stack.ss_size = bytes - sizeof(*machine);
    machine->uc_link = NULL;
    makecontext(machine, entry, 0);
    context->sp = machine;
}

static void machine_switch(struct rt_context *from, struct rt_context *to)
{
    ucontext_t here;
    if (from->sp == NULL || from->stack_bottom == NULL)
        from->sp = &here; /* the loop's own stack: lives in this frame while it is away */
    swapcontext(from->sp, to->sp);
}

#endif

void rt_context_make(struct rt_context *context, void *stack, size_t bytes, void (*entry)(void))
{
    context->stack_bottom = stack;
    context->stack_bytes = bytes;
    context->asan_fake_stack = NULL;
    machine_make(context, stack, bytes, entry);
#ifdef RT_TSAN
    if (context->tsan_fiber == NULL)
        context->tsan_fiber = __tsan_create_fiber(0);
#endif
}

#ifdef RT_ASAN

void rt_context_switch(struct rt_context *from, struct rt_context *to, bool from_ends)
{
    __sanitizer_start_switch_fiber(from_ends ? NULL : &from->asan_fake_stack, to->stack_bottom,
                                   to->stack_bytes);
    machine_switch(from, to);
    rt_context_entered(from);
}

/* Called first thing after arriving; learns the extent of a thread's own stack on the way. */
void rt_context_entered(struct rt_context *self)
{
    struct rt_context *scheduler = &rt_current_loop->scheduler;
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->asan_fake_stack, &bottom, &bytes);
    if (scheduler->stack_bottom == NULL && self != scheduler) {
        scheduler->stack_bottom = bottom;
        scheduler->stack_bytes = bytes;
    }
}

#else

/* Does not return to a task that ended: see task_entry. */
__attribute__((no_sanitize("thread"))) void rt_context_switch(struct rt_context *from,
                                                              struct rt_context *to, bool from_ends)
{
    (void)from_ends;
#ifdef RT_TSAN
    if (from->tsan_fiber == NULL)
        from->tsan_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    machine_switch(from, to);
}

void rt_context_entered(struct rt_context *self)
{
    (void)self;
}

#endif
