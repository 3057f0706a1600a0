/** docs/spec-gaps.md answers every gap of the specification, and each answer is pinned by a test that exists. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { wholeDocument } from '../harness/openapi.ts'
import { ROOT } from './source-imports.ts'

const text = readFileSync(join(ROOT, 'docs/spec-gaps.md'), 'utf8')
const [answered, later] = ['## Answered and pinned', '## Later'].map((heading) => rowsBelow(heading))

/** Rows of the table below a heading, without its two head lines. */
function rowsBelow(heading: string): string[][] {
  const section = text.split('\n## ').find((part) => `## ${part}`.startsWith(heading)) ?? ''
  return section
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .slice(2)
    .map((line) =>
      line
        .slice(1, -1)
        .split(' | ')
        .map((cell) => cell.trim()),
    )
}

/** The specification says "not shown" this often; each is a row of the first table, beside the rows for contradictions. */
const GAPS_OF_THE_SPECIFICATION = 24

describe('docs/spec-gaps.md', () => {
  it('has a row for every gap', () => {
    expect(answered?.length).toBeGreaterThan(GAPS_OF_THE_SPECIFICATION)
    expect(later).toBeDefined()
  })

  it.each([
    ['answered', answered ?? []],
    ['later', later ?? []],
  ])('every row of the table "%s" has its six cells, numbered, with a section and a decision', (_name, rows) => {
    for (const [index, cells] of rows.entries()) {
      expect(cells, cells.join(' | ')).toHaveLength(6)
      expect(
        cells.filter((cell) => cell === ''),
        cells.join(' | '),
      ).toEqual([])
      expect(cells[0]).toBe(String(index + 1))
      expect(cells[1]).toMatch(/^section [1-9](, [A-Z][A-Za-z -]+)?$/)
      expect(cells[4]).toMatch(/^(contract|decisions?|task manager) \d/)
    }
  })

  it.each(answered?.map((cells) => [cells[2] ?? '', cells[5] ?? '']) ?? [])('%s', (_question, pinned) => {
    const match = /^`([a-z0-9/.-]+\.test\.ts)`: (.+)$/.exec(pinned)
    expect(match, `${pinned} must be a file in backquotes, a colon and the name of a test`).not.toBeNull()
    const [, file = '', name = ''] = match ?? []
    expect(existsSync(join(ROOT, file)), `there is no ${file}`).toBe(true)
    const source = readFileSync(join(ROOT, file), 'utf8')
    // The whole name of a test in its quotes, not a part of one or a word of a comment.
    const isThere = [`'${name}'`, `"${name}"`, `\`${name}\``].some((quoted) => source.includes(quoted))
    expect(isThere, `${file} has no test "${name}"`).toBe(true)
  })

  it('no named test is skipped', () => {
    for (const cells of answered ?? []) {
      const [, file = '', name = ''] = /^`(.+)`: (.+)$/.exec(cells[5] ?? '') ?? []
      const source = readFileSync(join(ROOT, file), 'utf8')
      const at = source.indexOf(`${name}`)
      expect(source.slice(Math.max(0, at - 40), at), `${file}: ${name}`).not.toMatch(/\.(skip|todo|fails)\(/)
    }
  })

  it('no path of the API names a version', () => {
    const { paths } = wholeDocument() as { paths: Record<string, unknown> }
    expect(Object.keys(paths).length).toBeGreaterThan(40)
    // The specification of Iceberg fixes the paths of a catalogue.
    const ours = Object.keys(paths).filter((path) => !path.startsWith('/{domain_id}/iceberg/v1/'))
    expect(ours.filter((path) => /\/v\d+(\/|$)/.test(path))).toEqual([])
  })
})
