/** `skein completion <shell>`. */
import type { Group, GroupEntry } from '../shared/command.ts'
import { renderCompletion } from '../shared/completion.ts'
import { arg } from '../shared/values.ts'

export const completionOf = (groups: readonly GroupEntry[]): Group => ({
  name: 'completion',
  needsServer: false,
  summary: 'completion for bash, zsh or fish',
  commands: [
    {
      words: '',
      args: '<bash|zsh|fish>',
      tail: 'none',
      summary: 'print the completion script of a shell: source <(skein completion bash)',
      example: 'bash',
      async run(_cli, given) {
        process.stdout.write(await renderCompletion(groups, arg(given, 'bash|zsh|fish')))
      },
    },
  ],
})
