# Read by Redis' test suite after its own procedures: it runs only the tests of a list, and writes what became of
# each to a file. The suite itself stays as it is but for the line that reads this.
#
#   SUITE_ALLOWED  a file of "unit<TAB>name" lines; without it all tests run
#   SUITE_RESULTS  gets a line for each test: PASS, FAIL or PASSED-OVER, unit, name, what failed

set ::suite_allowed {}
set ::suite_filter [info exists ::env(SUITE_ALLOWED)]
if {$::suite_filter} {
    set list [open $::env(SUITE_ALLOWED)]
    fconfigure $list -encoding utf-8
    foreach line [split [read $list] "\n"] {
        dict set ::suite_allowed $line 1
    }
    close $list
}

proc suite_unit {} {
    regsub {^tests/(.*)\.tcl$} $::curfile {\1}
}

proc suite_say {result name {detail ""}} {
    set file [open $::env(SUITE_RESULTS) a]
    fconfigure $file -encoding utf-8
    puts $file [join [list $result [suite_unit] $name [string map {"\n" " " "\t" " "} $detail]] "\t"]
    close $file
}

rename test suite_test
proc test {name code args} {
    if {$::suite_filter && ![dict exists $::suite_allowed "[suite_unit]\t$name"]} {
        incr ::num_skipped
        suite_say PASSED-OVER $name "not in the list"
        return
    }
    set passed $::num_passed
    set failed $::num_failed
    uplevel 1 [list suite_test $name $code {*}$args]
    if {$::num_failed > $failed} {
        suite_say FAIL $name [lrange [lindex $::tests_failed end] 1 end]
        catch {reconnect} ;# the next test finds no transaction that this one began
    } elseif {$::num_passed > $passed} {
        suite_say PASS $name
    } else {
        suite_say PASSED-OVER $name "not for a server that the suite did not start"
    }
}

# Between tests the suite prepares what later tests want, also with commands and settings that are not promised
# (FUNCTION FLUSH before each group). Tests that need them are not in the list; the others go on.
rename ::redis::__dispatch__raw__ ::redis::suite_dispatch
proc ::redis::__dispatch__raw__ {id method argv} {
    set code [catch {::redis::suite_dispatch $id $method $argv} reply options]
    if {$code == 1 && $::cur_test eq "" &&
        ([string match -nocase "*ERR unknown *" $reply] || [string match "ERR CONFIG SET*" $reply])} {
        return ""
    }
    return -options $options $reply
}
