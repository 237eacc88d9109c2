/*
 * void rt_switch(void **save_sp, void *load_sp)
 *
 * Saves the callee-saved registers on the current stack, stores its pointer through rdi, and goes on
 * where the stack in rsi was left. It ends in an indirect jmp: a ret here would never match the
 * processor's return stack and cost about five times as much. MXCSR and the x87 control word are
 * not switched: nobody here changes them.
 */
#if defined(__x86_64__)
    .text
    .globl rt_switch
    .type rt_switch, @function
    .p2align 4
rt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size rt_switch, .-rt_switch
    .section .note.GNU-stack, "", @progbits
#endif
