"""Copies between registers stand outside of what a running product owns."""

from tilewright.codegen.nvidia.register_copies import place_copies

BEGIN, END = "\t// begin inline asm\n", "\t// end inline asm\n"
FENCE = f"{BEGIN}\twgmma.fence.sync.aligned;\n{END}"
WAIT = f"{BEGIN}\twgmma.wait_group.sync.aligned 0;\n{END}"
COMMIT = "\twgmma.commit_group.sync.aligned;\n"


def product(*sums):
    text = ", ".join(sums)
    return f"{BEGIN}\t{{\n.reg .b64 a;\nwgmma.mma_async.sync.aligned {{{text}}}, a;\n}}\n{END}"


def copy(to, of):
    return f"\tmov.b32 \t{to}, {of};\n"


def test_copies_before_a_wait_go_behind_it():
    copies = copy("%r3", "%r1") + copy("%r4", "%r2")
    assert place_copies(COMMIT + copies + WAIT + "\tret;\n") == COMMIT + WAIT + copies + "\tret;\n"


def test_copies_behind_a_fence_go_before_it():
    one, two = copy("%r1", "%r5"), copy("%r2", "%r6")
    text = FENCE + one + product("%r1", "%r9") + two + product("%r2") + COMMIT
    assert place_copies(text) == one + two + FENCE + product("%r1", "%r9") + product("%r2") + COMMIT


def test_copies_of_what_a_product_names_stay_where_they_are():
    text = (
        FENCE + product("%r1") + copy("%r2", "%r1") + copy("%r3", "%r2") + product("%r3") + COMMIT
    )
    assert place_copies(text) == text


def test_other_copies_stay_where_they_are():
    text = f"{BEGIN}\tbar.sync 0;\n{END}" + copy("%r1", "%r2") + "\tadd.s32 \t%r3, %r1, 1;\n"
    assert place_copies(text) == text
