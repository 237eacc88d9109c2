/*
 * void rt_switch(void **save_sp, void *load_sp)
 *
 * Callee-saved registers to the stack, stack pointers exchanged, then a plain branch: a ret would not
 * match the processor's return stack.
 */
#if defined(__aarch64__)
    .text
    .globl rt_switch
    .type rt_switch, %function
    .p2align 4
rt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    br x30
    .size rt_switch, .-rt_switch
#endif

/* On every machine: an object without it asks for an executable stack. */
    .section .note.GNU-stack,"",%progbits
