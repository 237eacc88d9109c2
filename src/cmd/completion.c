/*
 * completion.c - what a shell needs to complete commands and options. The scripts ask the program
 * itself (--help=commands, COMMAND --help=flags), so they never disagree with it.
 */
#include "cmd/completion.h"

#include <string.h>

#include "cmd/cmd.h"

/* In all three: the command is the first word, or two of them for a group such as `table`. What
 * follows a flag with a value is completed by what the value is called: FILE, URI, LEVEL. */

static const char bash_script[] =
    "# bash completion for pando; `pando completion bash` prints it.\n"
    "_pando() {\n"
    "    local program=${COMP_WORDS[0]} line=${COMP_LINE:0:COMP_POINT} words current previous\n"
    "    local command flags metavar candidates\n"
    "    read -ra words <<< \"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && words+=(\"\")\n"
    "    local count=${#words[@]}\n"
    "    current=${words[count - 1]}\n"
    "    previous=${words[count - 2]}\n"
    "    COMPREPLY=()\n"
    "    local commands=$(\"$program\" --help=commands 2>/dev/null | cut -f1)\n"
    "    if ((count == 2)); then\n"
    "        candidates=\"$(cut -d' ' -f1 <<< \"$commands\" | sort -u) --help --version\"\n"
    "        COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n"
    "        return\n"
    "    fi\n"
    "    if grep -q \"^${words[1]} \" <<< \"$commands\"; then\n"
    "        if ((count == 3)); then\n"
    "            candidates=$(sed -n \"s/^${words[1]} //p\" <<< \"$commands\")\n"
    "            COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n"
    "            return\n"
    "        fi\n"
    "        command=(\"${words[1]}\" \"${words[2]}\")\n"
    "    else\n"
    "        command=(\"${words[1]}\")\n"
    "    fi\n"
    "    flags=$(\"$program\" \"${command[@]}\" --help=flags 2>/dev/null)\n"
    "    metavar=$(awk -F'\\t' -v flag=\"$previous\" '$1 == flag { print $2 }' <<< \"$flags\")\n"
    "    if [[ -n $metavar ]]; then\n"
    "        case $metavar in\n"
    "        FILE) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
    "        LEVEL) COMPREPLY=($(compgen -W 'error warn info debug' -- \"$current\")) ;;\n"
    "        URI)\n"
    "            candidates='embedded: tcp: sim:'\n"
    "            candidates+=$(printf ' shm:%s' $(ls /dev/shm 2>/dev/null |\n"
    "                sed -n 's/^pando-//p' | grep -v '\\.'))\n"
    "            COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n"
    "            # What stands before a colon is a word of its own to readline.\n"
    "            [[ $COMP_WORDBREAKS != *:* || $current != *:* ]] ||\n"
    "                COMPREPLY=(\"${COMPREPLY[@]#\"${current%:*}:\"}\")\n"
    "            compopt -o nospace 2>/dev/null\n"
    "            ;;\n"
    "        esac\n"
    "    elif [[ $current == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(cut -f1 <<< \"$flags\")\" -- \"$current\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _pando pando\n";

static const char zsh_script[] =
    "#compdef pando\n"
    "# zsh completion for pando; `pando completion zsh` prints it.\n"
    "_pando() {\n"
    "    local program=$words[1] metavar\n"
    "    local -a commands group flags\n"
    "    commands=(${(f)\"$($program --help=commands 2>/dev/null)\"})\n"
    "    if ((CURRENT == 2)); then\n"
    "        group=(${commands%%[[:space:]]*})\n"
    "        compadd -- ${(u)group}\n"
    "        return\n"
    "    fi\n"
    "    local -a command=($words[2])\n"
    "    if [[ -n ${(M)commands:#$words[2] *} ]]; then\n"
    "        if ((CURRENT == 3)); then\n"
    "            group=(${${(M)commands:#$words[2] *}#$words[2] })\n"
    "            compadd -- ${group%%$'\\t'*}\n"
    "            return\n"
    "        fi\n"
    "        command+=($words[3])\n"
    "    fi\n"
    "    flags=(${(f)\"$($program $command --help=flags 2>/dev/null)\"})\n"
    "    metavar=${${(M)flags:#$words[CURRENT - 1]$'\\t'*}#*$'\\t'}\n"
    "    case ${metavar%%$'\\t'*} in\n"
    "    FILE) _files ;;\n"
    "    LEVEL) compadd error warn info debug ;;\n"
    "    URI) compadd -S '' -- embedded: tcp: sim: shm:${^$(cd /dev/shm && print "
    "pando-*(N))#pando-} ;;\n"
    "    '') [[ $words[CURRENT] == -* ]] && compadd -- ${flags%%$'\\t'*} || _files ;;\n"
    "    esac\n"
    "}\n"
    "_pando \"$@\"\n";

static const char fish_script[] =
    "# fish completion for pando; `pando completion fish` prints it.\n"
    "function __pando_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l program $words[1]\n"
    "    if test (count $words) -eq 1\n"
    "        $program --help=commands 2>/dev/null | string replace -r ' .*?\\t' '\\t'\n"
    "        return\n"
    "    end\n"
    "    set -l command $words[2]\n"
    "    set -l group ($program --help=commands 2>/dev/null | string match -- \"$command *\")\n"
    "    if test (count $group) -gt 0\n"
    "        if test (count $words) -eq 2\n"
    "            string replace -- \"$command \" '' $group\n"
    "            return\n"
    "        end\n"
    "        set command $command $words[3]\n"
    "    end\n"
    "    $program $command --help=flags 2>/dev/null | string replace -r '\\t.*?\\t' '\\t'\n"
    "end\n"
    "complete -c pando -a '(__pando_complete)'\n";

static const struct {
    const char *shell, *script;
} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

static const struct config_command command = {
    .name = "completion",
    .summary = "Prints the completion of commands and options for bash, zsh or fish.",
    .positionals = "bash|zsh|fish",
    .example = "source <(pando completion bash)",
    .positionals_min = 1,
    .positionals_max = 1,
};

int cmd_completion(int argc, char **argv)
{
    struct config config;
    int result;
    if (cmd_load(&config, &command, argc, argv, NULL, &result)) {
        result = EXIT_USAGE;
        for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
            if (strcmp(config.positionals[0], scripts[i].shell) != 0)
                continue;
            fputs(scripts[i].script, stdout);
            result = fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
        }
        if (result == EXIT_USAGE)
            cmd_error("completion", "%.32s: no such shell; there is bash, zsh and fish",
                      config.positionals[0]);
    }
    config_fini(&config);
    return result;
}
