/**
 * Shell completion, generated from the command tables: the possible next words of each prefix. The scripts are
 * self-contained, so that completion sends no request.
 */
import type { Command, GroupEntry } from './command.ts'
import { FLAGS } from './flags.ts'
import type { Flag } from './flags.ts'
import { UsageError } from './failures.ts'

/** Words so far, joined by spaces, and the possible next words with their summaries. */
type Completions = Map<string, Map<string, string>>

export async function renderCompletion(groups: readonly GroupEntry[], shell: string): Promise<string> {
  const completions = await completionsOf(groups)
  switch (shell) {
    case 'bash':
      return bash(completions)
    case 'zsh':
      return zsh(completions)
    case 'fish':
      return fish(completions)
    default:
      throw new UsageError(`completion is not available for ${shell}`, 'skein completion <bash|zsh|fish>')
  }
}

async function completionsOf(groups: readonly GroupEntry[]): Promise<Completions> {
  const completions: Completions = new Map()
  const add = (place: string, word: string, summary: string) => {
    const words = completions.get(place) ?? new Map<string, string>()
    if (!words.has(word)) words.set(word, summary)
    completions.set(place, words)
  }
  for (const entry of groups) {
    const group = await entry.load()
    for (const name of [entry.name, ...(entry.aliases ?? [])]) {
      add('', name, entry.summary)
      for (const command of group.commands) if (command.isOlder !== true) addCommand(name, command, add)
    }
  }
  add('', 'help', 'help of a group or command')
  return completions
}

function addCommand(
  group: string,
  command: Command,
  add: (place: string, word: string, summary: string) => void,
): void {
  const words = command.words === '' ? [] : command.words.split(' ')
  for (const [index, word] of words.entries())
    add([group, ...words.slice(0, index)].join(' '), word, index === words.length - 1 ? command.summary : '…')
  for (const flag of command.flags ?? []) add([group, ...words].join(' '), `--${flag}`, flagSummary(flag))
  // An argument with a fixed set of values.
  const choice = /^<([a-z|]+)>$/.exec(command.args)?.[1]?.split('|') ?? []
  if (choice.length > 1 && words.length === 0) for (const word of choice) add(group, word, '')
}

const flagSummary = (name: string): string => FLAGS.find((flag) => flag.name === name)?.summary ?? ''
const globalFlags = (): Flag[] => FLAGS.filter((flag: Flag) => flag.group !== undefined)
/** Removes characters that are special in double quotes or brackets of any shell. */
const plain = (text: string): string => text.replaceAll(/["'`$\\:[\]]/g, '')

function bash(completions: Completions): string {
  return `# bash completion of skein: source <(skein completion bash)
_skein() {
  local current=\${COMP_WORDS[COMP_CWORD]} place="" word words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      -*) ;;
      *) place="\${place:+$place }$word" ;;
    esac
  done
  while :; do
    case $place in
${[...completions].map(([place, words]) => `      ${JSON.stringify(place)}) words="${[...words.keys()].join(' ')}" ;;`).join('\n')}
      *)
        # The last word is an argument: complete after the words before it.
        if [[ $place == *" "* && $current == -* ]]; then place=\${place% *}; continue; fi ;;
    esac
    break
  done
  [[ $current == -* ]] && words="$words ${globalFlags()
    .map((flag) => `--${flag.name}`)
    .join(' ')}"
  if [[ $current == @* ]]; then
    COMPREPLY=($(compgen -P @ -f -- "\${current#@}"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ \${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _skein skein
`
}

function zsh(completions: Completions): string {
  return `#compdef skein
# zsh completion of skein: skein completion zsh > "\${fpath[1]}/_skein"
_skein() {
  local place="" word
  local -a options
  for word in "\${words[@]:1:$((CURRENT-2))}"; do
    [[ $word == -* ]] || place="\${place:+$place }$word"
  done
  case $place in
${[...completions]
  .map(
    ([place, words]) =>
      `    ${JSON.stringify(place)}) options=(${[...words].map(([word, summary]) => `"${word}:${plain(summary)}"`).join(' ')}) ;;`,
  )
  .join('\n')}
  esac
  if [[ $words[CURRENT] == -* ]]; then
    options+=(${globalFlags()
      .map((flag) => `"--${flag.name}:${plain(flag.summary)}"`)
      .join(' ')})
  fi
  if (( \${#options} )); then _describe skein options; else _files; fi
}
if [[ $funcstack[1] == _skein ]]; then _skein "$@"; else compdef _skein skein; fi
`
}

function fish(completions: Completions): string {
  const lines = [...completions].flatMap(([place, words]) =>
    [...words].map(([word, summary]) => {
      const condition = `-n '__skein_at ${JSON.stringify(place)}'`
      const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-f -a ${word}`
      return `complete -c skein ${condition} ${what} -d "${plain(summary)}"`
    }),
  )
  const flags = globalFlags().map((flag) => {
    const short = flag.short === undefined ? '' : ` -s ${flag.short}`
    return `complete -c skein -l ${flag.name}${short}${flag.value === undefined ? '' : ' -r'} -d "${plain(flag.summary)}"`
  })
  return `# fish completion of skein: skein completion fish > ~/.config/fish/completions/skein.fish
function __skein_at
  set -l words (commandline -opc)
  set -e words[1]
  set -l place (string match -v -- '-*' $words)
  test "$place" = $argv[1]
end
${[...lines, ...flags].join('\n')}
`
}
