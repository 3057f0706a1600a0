/** docs/mqtt-clauses.md names a test for each clause of the standard, and each of them exists. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ROOT } from './source-imports.ts'

/** Fewer would mean that the table is not read. */
const CLAUSES_AT_LEAST = 150

const rows = readFileSync(join(ROOT, 'docs/mqtt-clauses.md'), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const match = /^\| MQTT-([\d.]+-\d+) \| .+ \| `([a-z0-9/.-]+\.test\.ts)`: (.+) \|$/.exec(line)
    return match === null ? [] : [{ clause: match[1] ?? '', file: match[2] ?? '', name: match[3] ?? '' }]
  })

it('each clause has one row', () => {
  const clauses = rows.map(({ clause }) => clause)
  expect(clauses.length).toBeGreaterThanOrEqual(CLAUSES_AT_LEAST)
  expect([...new Set(clauses)]).toEqual(clauses)
})

it.each(rows)('$clause has a test', ({ file, name }) => {
  expect(existsSync(join(ROOT, file)), `there is no ${file}`).toBe(true)
  const source = readFileSync(join(ROOT, file), 'utf8')
  const isThere = [`'${name}'`, `"${name}"`, `\`${name}\``].some((quoted) => source.includes(quoted))
  expect(isThere, `${file} has no test "${name}"`).toBe(true)
})
