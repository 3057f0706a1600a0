/** The table of older forms: each row has a test that sends it, a file that translates it, and no service knows it. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { olderPathOf } from '#api/legacy-routes.ts'
import { PATHS } from '#older/table.ts'
import { OLDER_ROWS } from '../../tools/generate/older-forms.ts'
import { ROOT, productSources } from './source-imports.ts'

const DOMAIN = '5384fb1c-d0ae-4cbe-be52-c54223150fe0'
const BOUND = `Bearer x.${Buffer.from(JSON.stringify({ domain: DOMAIN })).toString('base64url')}.y`
const ROWS = Object.entries(OLDER_ROWS).flatMap(([table, rows]) => rows.map((row) => ({ ...row, table })))
const { paths: SERVED } = JSON.parse(readFileSync(join(ROOT, 'openapi.json'), 'utf8')) as { paths: object }

type Recorded = { cases: { name: string }[] }

/** The text of a test: a recorded request, or the part of a test file from one test to the next. Undefined: there is no such test. */
function textOf(reference: string): string | undefined {
  const [, file = '', title = ''] = /^(\S+): (.+)$/.exec(reference) ?? []
  if (file.endsWith('.json')) {
    const path = join(ROOT, 'test/compatibility/data', file)
    const { cases } = JSON.parse(existsSync(path) ? readFileSync(path, 'utf8') : '{"cases":[]}') as Recorded
    const found = cases.find(({ name }) => name === title)
    return found === undefined ? undefined : JSON.stringify(found)
  }
  const path = join(ROOT, file)
  const parts = existsSync(path) ? readFileSync(path, 'utf8').split(/^(?=\s*(?:test|it|describe)\b)/m) : []
  return parts.find((part) => part.includes(`'${title}'`))
}

/** The URLs that a text contains, with their variables filled. */
const urlsIn = (text: string) =>
  [...text.matchAll(/["'`](\/[^"'`\s]*)["'`]/g)].map(([, url = '']) =>
    url.replaceAll(/\$?\{[a-z_]*domain\}/gi, DOMAIN).replaceAll(/\$?\{[^}]*\}/g, 'x'),
  )

const asPattern = (older: string) =>
  new RegExp(`^${older.replace('{domain_id}', '[^/]+').replaceAll(/\{[a-z_]+\}/g, '[^/?]+')}(\\?|$)`)

/** Whether a test sends or reads the form. */
function isIn(text: string, { table, older, newer }: (typeof ROWS)[number]): boolean {
  if (table === 'paths') {
    // A status of its own is the answer to a deletion.
    if (PATHS.find((row) => row.older === older)?.status !== undefined && !text.includes('DELETE')) return false
    const isRow = (url: string, token?: string) => {
      const found = olderPathOf(url, token)
      return found?.older === older && found.newer === newer
    }
    return urlsIn(text).some((url) => isRow(url) || isRow(url, BOUND))
  }
  if (table === 'routes') {
    const pattern = asPattern(older)
    return urlsIn(text).some((url) => pattern.test(url)) || text.includes(older.split('}').at(-1) ?? older)
  }
  return new RegExp(`(?<![a-z_])${older}(?![a-z_])`, 'i').test(text)
}

describe('the table of older forms', () => {
  test('has rows of every kind', () => {
    expect(Object.values(OLDER_ROWS).filter((rows) => rows.length < 2)).toEqual([])
    expect(ROWS.length).toBeGreaterThan(70)
    expect(PATHS).toHaveLength(OLDER_ROWS['paths']?.length ?? 0)
  })

  test.each(ROWS)('$table: $older in $place is shown by a test', (row) => {
    const text = textOf(row.test)
    expect(text, `there is no test ${row.test}`).toBeDefined()
    expect(isIn(text ?? '', row), `${row.test} does not contain ${row.older}`).toBe(true)
  })

  test('a row without its test is found', () => {
    const [row] = ROWS.filter(({ table }) => table === 'fields')
    expect(textOf('things.json: is not there')).toBeUndefined()
    expect(textOf('test/api/users.test.ts: is not there')).toBeUndefined()
    expect(row !== undefined && isIn(textOf('things.json: deleted') ?? '', row)).toBe(false)
  })

  test('names the file that translates each form', () => {
    const wrong = ROWS.filter(({ place, table, older }) => {
      const text = existsSync(join(ROOT, place)) ? readFileSync(join(ROOT, place), 'utf8') : ''
      if (table === 'paths' || table === 'refused') return !text.includes('#older/index.ts')
      if (table === 'routes') return !text.includes(older.split('}').at(-1)?.split('/').at(-1) ?? '')
      if (table === 'rules') return !new RegExp(older, 'i').test(text)
      return !text.includes(`'${place}'`)
    })
    expect(wrong).toEqual([])
  })

  test('names routes that are served', () => {
    const named = (OLDER_ROWS['routes'] ?? []).flatMap(({ older, newer }) => [older, newer])
    expect(named.filter((path) => !Object.hasOwn(SERVED, path))).toEqual([])
  })
})

/** Words of the table that are words of Skein too, with what they mean there. */
const OWN_WORDS: Readonly<Record<string, string>> = {
  actions: 'the actions of a role',
  administrator: 'a relation, which invitations and assignments have',
  channels: 'the entities',
  channel_id: 'the channel of a message, a task and a subscription',
  file: 'the bytes of a module, and the file of an import',
  identity: 'the name that a login and the credentials of a client have',
  kind: 'the kind of a module, a notification and an error',
  member: 'a member of a role',
  name: 'the name of an entity',
  null: 'the value',
  parent_group_id: 'the parent of a client, a channel and a group',
  password: 'the password of a user',
  route: 'the alias of a domain or a channel in paths',
  undefined: 'the value',
  username: 'the name of a user',
  viewer: 'the user who sees a dashboard',
}

const COMMENTS = /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*$/gm
const IMPORTS = /(?<=from )'[^']*'/g

/** The older words in the code of services and repositories. */
function olderWordsIn(sources: readonly { path: string; text: string }[]): string[] {
  const words = new Set(ROWS.filter(({ table }) => table !== 'paths' && table !== 'routes').map(({ older }) => older))
  return sources
    .filter(({ path }) => /^(api|manager)\/.*\/(service|repository)\.ts$/.test(path))
    .flatMap(({ path, text }) => {
      const code = text.replaceAll(COMMENTS, '').replaceAll(IMPORTS, '')
      const found = [...words].filter((word) => new RegExp(`(?<![\\w-])${word}(?![\\w-])`).test(code))
      return found.map((word) => `${path}: ${word}`)
    })
}

test('no service and no repository contains an older word', () => {
  const found = olderWordsIn(productSources())
  const wordOf = (line: string) => line.split(': ')[1] ?? ''
  expect(found.filter((line) => !Object.hasOwn(OWN_WORDS, wordOf(line)))).toEqual([])
  expect(Object.keys(OWN_WORDS).filter((word) => !found.some((line) => wordOf(line) === word))).toEqual([])
})

test('an older word in a service is found', () => {
  const planted = [
    { path: 'api/devices/clients/service.ts', text: 'const id = body.thing_id' },
    { path: 'manager/tasks/repository.ts', text: '// proplet_id' },
    { path: 'api/devices/clients/routes.ts', text: 'const id = body.thing_id' },
  ]
  expect(olderWordsIn(planted)).toEqual(['api/devices/clients/service.ts: thing_id'])
})
