/** The access matrix and the account matrix as text. */
import { ACCOUNT_COLUMNS } from './accounts.ts'
import type { AccountLine } from './accounts.ts'
import { COLUMNS } from './callers.ts'
import type { Line } from './walk.ts'

const HEAD = `# Who may do what, asked of the running API by a test that compares its answers with this file.
# After a change that is meant: vitest run --project matrix test/matrix -u, and review every line of the difference.
#
# A row is a call; the word behind it is the action that guards it (A), and after a + the second one, on the other entity that
# the call names (B). A cell is the status. 401: who? 403: may not, and may know that it is there (or: no member of the
# domain). 404: may not even know. 409 and 422: let through, and refused for another reason. A dot: cannot be.
#
`

export function printMatrix(lines: readonly Line[]): string {
  const width = Math.max(...lines.map(({ row }) => labelOf({ row, cells: [] }).length)) + 2
  const heading = `${' '.repeat(width)}${COLUMNS.map(({ name }) => name).join(' ')}`
  const folded = foldAliases(lines)
  const sections = ['domain', 'group', 'channel', 'client'].map((on) => {
    const of = folded.filter(({ row }) => row.on === on)
    return [
      `\n${on.toUpperCase().padEnd(width)}${heading.trimStart()}`,
      ...of.map((line) => `${labelOf(line).padEnd(width)}${line.cells.join(' ')}`),
    ].join('\n')
  })
  return `${HEAD}${COLUMNS.map(({ name, says }) => `# ${name}  ${says}`).join('\n')}\n${sections.join('\n')}\n`
}

function labelOf({ row }: Line): string {
  const [first, second] = row.needs
  return `${row.label}  ${first?.action}${second === undefined ? '' : ` + ${second.action}`}`
}

/** `/role` is an alias of `/roles` (decision 4): one line where both answer alike. */
function foldAliases(lines: readonly Line[]): Line[] {
  const plural = new Map(lines.map((line) => [line.row.label, line]))
  const isAlias = ({ row, cells }: Line) => {
    const of = plural.get(row.label.replace(/\/role(?=\/|$)/, '/roles'))
    return of !== undefined && of.row !== row && of.cells.join() === cells.join()
  }
  const folded = lines.filter(isAlias).map(({ row }) => row.label.replace(/\/role(?=\/|$)/, '/roles'))
  return lines
    .filter((line) => !isAlias(line))
    .map((line) =>
      folded.includes(line.row.label)
        ? { ...line, row: { ...line.row, label: line.row.label.replace(/\/roles(?=\/|$)/, '/role[s]') } }
        : line,
    )
}

const ACCOUNT_HEAD = `# Who may do what with users and what is theirs alone, asked of the running API by a test that compares its answers with this file.
# After a change that is meant: vitest run --project matrix test/matrix -u, and review every line of the difference.
#
# A row is a call; the word behind it is its action. A cell is the status. 404 of a call about a key, a token, a session or an
# invitation: let through, and there is none of the id that was asked for.
#
`

export function printAccountMatrix(lines: readonly AccountLine[]): string {
  const accountLabelOf = ({ route: { method, url, action } }: AccountLine) =>
    `${method.padEnd(6)} ${url.replaceAll(/:([a-z_]+)/g, '{$1}')}  ${action}`
  const width = Math.max(...lines.map((line) => accountLabelOf(line).length)) + 2
  const legend = ACCOUNT_COLUMNS.map(([name, says]) => `# ${name}  ${says}`)
  const heading = `${' '.repeat(width)}${ACCOUNT_COLUMNS.map(([name]) => name).join(' ')}`
  const rows = lines.map((line) => `${accountLabelOf(line).padEnd(width)}${line.cells.join(' ')}`)
  return `${ACCOUNT_HEAD}${legend.join('\n')}\n\n${heading}\n${rows.join('\n')}\n`
}
