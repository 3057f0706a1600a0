/**
 * Generates the index in docs/decisions/README.md from the headings of the decisions; the prose and the retired numbers
 * are written by hand.
 */
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { replaceParts } from './parts.ts'

export const DECISIONS = 'docs/decisions/README.md'
const ROOT = join(import.meta.dirname, '..', '..')

type Head = { number: string; file: string; title: string; supersedes: string[] }

/** The index with a generated table. Throws for an invalid heading and for a duplicate or unknown number. */
export function renderDecisions(): string {
  const text = readFileSync(join(ROOT, DECISIONS), 'utf8')
  const heads = globSync('docs/decisions/[0-9]*.md', { cwd: ROOT }).toSorted().map(readHead)
  const gone = [...text.matchAll(/^\| (\d{4}) \|.*$/gmu)].map((row) => row[1] ?? '')
  checkNumbers(heads, gone)
  return replaceParts(DECISIONS, text, { index: renderIndex(heads) })
}

/** A heading is `# NNNN Title`, with a line `Supersedes: NNNN, NNNN` if it replaces others. */
function readHead(path: string): Head {
  const file = basename(path)
  const number = file.slice(0, 4)
  const [head = ''] = readFileSync(join(ROOT, path), 'utf8').split('\n## ')
  const title = /^# (\d{4}) (.+)\n/u.exec(head)
  if (title?.[1] !== number) throw new Error(`${path} must begin with "# ${number} Title"`)
  const supersedes = /^Supersedes: (\d{4}(?:, \d{4})*)$/mu.exec(head)?.[1]?.split(', ') ?? []
  if (supersedes.length === 0 && /^(?:Supersedes|Replaces)/mu.test(head))
    throw new Error(`${path} must name what it replaces in a line "Supersedes: NNNN, NNNN"`)
  return { number, file, title: title[2] ?? '', supersedes }
}

function checkNumbers(heads: Head[], gone: string[]): void {
  const numbers = [...heads.map(({ number }) => number), ...gone]
  const twice = numbers.find((number, index) => numbers.indexOf(number) !== index)
  if (twice !== undefined)
    throw new Error(`${DECISIONS}: ${twice} is a duplicate; rows of existing files are generated`)
  for (const { file, supersedes } of heads)
    for (const number of supersedes)
      if (!numbers.includes(number)) throw new Error(`${file} supersedes ${number}, which does not exist`)
}

function renderIndex(heads: Head[]): string {
  const supersededBy = new Map(heads.flatMap(({ number, supersedes }) => supersedes.map((old) => [old, number])))
  const rows = heads.map(({ number, file, title, supersedes }) => {
    const status = supersededBy.has(number) ? `superseded by ${supersededBy.get(number)}` : 'accepted'
    return `| [${number}](${file}) | ${title} | ${status} | ${supersedes.join(', ')} |`
  })
  return ['| Number | Decision | Status | Supersedes |', '|---|---|---|---|', ...rows, ''].join('\n')
}
