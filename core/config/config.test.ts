/** Settings are read once, their faults are reported together, and secrets are never printed (contract section 15). */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterAll, describe, expect, test } from 'vitest'
import { ServiceError } from '../errors/index.ts'
import {
  Secret,
  bytes,
  choice,
  durationMs,
  flag,
  httpUrl,
  integer,
  labels,
  list,
  optionalAddress,
  optionalInteger,
  optionalUrl,
  port,
  readConfig,
  secret,
  text,
  unknownVariables,
} from './index.ts'
import type { Setting } from './index.ts'

const read = <T>(one: Setting<T>, value: string | undefined): unknown => readConfig({ one }, { X: value }).one

describe('a setting', () => {
  test.each<[string, Setting<unknown>, [string | undefined, unknown][]]>([
    [
      'text',
      text('X', 'a', ''),
      [
        [undefined, 'a'],
        ['', 'a'],
        ['b', 'b'],
      ],
    ],
    [
      'flag',
      flag('X', false, ''),
      [
        [undefined, false],
        ['true', true],
        ['TRUE', true],
        ['1', true],
        ['0', false],
      ],
    ],
    [
      'integer',
      integer('X', 5, { min: 1, max: 9 }, ''),
      [
        [undefined, 5],
        ['1', 1],
        ['9', 9],
      ],
    ],
    [
      'optionalInteger',
      optionalInteger('X', { min: 1, max: 9 }, ''),
      [
        [undefined, undefined],
        ['7', 7],
      ],
    ],
    [
      'port',
      port('X', 80, ''),
      [
        ['0', 0],
        ['65535', 65_535],
      ],
    ],
    [
      'durationMs',
      durationMs('X', '1h', ''),
      [
        [undefined, 3_600_000],
        ['1h30m', 5_400_000],
        ['250ms', 250],
        ['0', 0],
      ],
    ],
    [
      'bytes',
      bytes('X', '1MiB', ''),
      [
        [undefined, 1_048_576],
        ['512', 512],
        ['2 GB', 2e9],
        ['64kib', 65_536],
      ],
    ],
    [
      'choice',
      choice('X', ['a', 'b'], 'a', ''),
      [
        [undefined, 'a'],
        ['b', 'b'],
      ],
    ],
    [
      'list',
      list('X', [], ''),
      [
        [undefined, []],
        ['a, b,,c ', ['a', 'b', 'c']],
      ],
    ],
    [
      'labels',
      labels('X', ''),
      [
        [undefined, {}],
        ['zone=north, url=http://a?b=c', { zone: 'north', url: 'http://a?b=c' }],
      ],
    ],
    [
      'httpUrl',
      httpUrl('X', 'http://a', ''),
      [
        ['https://b/', 'https://b'],
        [' https://b ', 'https://b'],
      ],
    ],
    [
      'optionalUrl',
      optionalUrl('X', ['mqtt', 'mqtts'], ''),
      [
        [undefined, undefined],
        [' mqtts://b/ ', 'mqtts://b'],
        ['mqtt://[fd00::7]:1883', 'mqtt://[fd00::7]:1883'],
      ],
    ],
    [
      'optionalAddress',
      optionalAddress('X', ''),
      [
        [undefined, undefined],
        [' b.example.com:443 ', 'b.example.com:443'],
      ],
    ],
  ])('%s accepts its documented forms', (_name, one, cases) => {
    for (const [given, wanted] of cases) expect(read(one, given), String(given)).toEqual(wanted)
  })

  test.each<[Setting<unknown>, string[]]>([
    [flag('X', false, ''), ['yes', '2', 'tru']],
    [integer('X', 5, { min: 1, max: 9 }, ''), ['0', '10', '1.5', '1e1', 'x', ' 1', '0x1']],
    [port('X', 80, ''), ['-1', '65536', 'http']],
    [durationMs('X', '1h', ''), ['1', '-1s', '1 h', 's', '1d', `${'9'.repeat(400)}h`]],
    [bytes('X', '1MiB', ''), ['1TB', '-1', '1.5MiB', '', '99999999999GB'].filter((value) => value !== '')],
    [choice('X', ['a', 'b'], 'a', ''), ['c', 'A']],
    [labels('X', ''), ['zone', '=north']],
    [httpUrl('X', 'http://a', ''), ['ftp://a', 'a', '//a']],
    [
      optionalUrl('X', ['mqtt'], ''),
      ['mqtts://a', 'a', 'mqtt://', 'mqtt://a/b', 'mqtt://u:p@a', 'mqtt://a:99999', 'mqtt://$a'],
    ],
    [optionalAddress('X', ''), ['a', ':7071', 'a:b', 'a:99999', 'http://a:1', 'a b:1']],
  ])('of another form fails with the accepted form', (one, wrong) => {
    for (const value of wrong) expect(() => read(one, value), value).toThrow(/^X must be .*, not "/)
  })

  test('may have aliases; the first one that is set wins', () => {
    const one = text('NEW', 'none', '', { aliases: ['OLD', 'OLDER'] })
    expect(readConfig({ one }, { OLDER: 'c', OLD: 'b' }).one).toBe('b')
    expect(readConfig({ one }, { OLD: 'b', NEW: 'a' }).one).toBe('a')
    expect(readConfig({ one }, { NEW: '', OLD: 'b' }).one).toBe('b')
  })
})

test('all faults are reported together, one line each, with the variable that was set', () => {
  const settings = { a: port('A', 1, ''), b: flag('B', true, '', { aliases: ['OLD_B'] }) }
  let refusal: unknown
  try {
    readConfig(settings, { A: 'x', OLD_B: 'two\nlines' })
  } catch (error) {
    refusal = error
  }
  expect(refusal).toBeInstanceOf(ServiceError)
  expect((refusal as ServiceError).message.split('\n')).toEqual([
    'A must be a whole number from 0 to 65535, not "x"',
    'OLD_B must be true or false, not "two\\nlines"',
  ])
  expect((refusal as ServiceError).details?.map(({ path }) => path)).toEqual(['A', 'OLD_B'])
})

test('the configuration is frozen', () => {
  const config = readConfig({ one: text('X', 'a', '') }, {})
  expect(() => Object.assign(config, { one: 'b' })).toThrow(TypeError)
})

test('a secret prints as [redacted] in every form of output', () => {
  const { one } = readConfig({ one: secret('X', '') }, { X: 'hunter2' })
  expect(one).toBeInstanceOf(Secret)
  for (const printed of [
    String(one),
    JSON.stringify({ one }),
    inspect(one),
    inspect({ deep: { one } }),
    JSON.stringify(Object.entries(one ?? {})),
  ])
    expect(printed).not.toContain('hunter2')
  expect(one?.reveal()).toBe('hunter2')
})

test('a misspelt variable is reported with the nearest name; variables of other programs are not', () => {
  const settings = { one: port('SKEIN_HTTP_PORT', 1, '') }
  expect(
    unknownVariables([settings], { SKEIN_HTTP_PROT: '1', SKEIN_HTTP_ODD: '1', PATH: 'a', SKEIN_HTTP_PORT: '1' }, [
      'SKEIN_HTTP_',
    ]),
  ).toEqual(['SKEIN_HTTP_ODD is not a setting', 'SKEIN_HTTP_PROT is not a setting; did you mean SKEIN_HTTP_PORT?'])
  // The command line has variables of its own.
  expect(unknownVariables([settings], { SKEIN_MANAGER_URL: 'x', SKEIN_TOKEN: 'x' }, ['SKEIN_'])).toEqual([])
})

describe('a secret in a file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-secret-'))
  afterAll(() => rmSync(folder, { recursive: true }))
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text)
    return join(folder, name)
  }
  const one = secret('X', '')
  const from = (environment: Record<string, string>) => readConfig({ one }, environment).one?.reveal()

  test('is read without the line end after it, and the variable itself overrides it', () => {
    expect(from({ X_FILE: file('a', 'hunter2\n') })).toBe('hunter2')
    expect(from({ X_FILE: file('b', ' two\nlines\r\n') })).toBe(' two\nlines')
    expect(from({ X: 'three', X_FILE: file('c', 'four') })).toBe('three')
    expect(unknownVariables([{ one }], { X_FILE: 'a', X_FIEL: 'a' }, ['X'])).toEqual([
      'X_FIEL is not a setting; did you mean X_FILE?',
    ])
  })

  test('is refused with its path and without its text', () => {
    const refusal = (path: string) => {
      try {
        from({ X_FILE: path })
      } catch (error) {
        return (error as Error).message
      }
      return undefined
    }
    const missing = join(folder, 'missing')
    expect(refusal(missing)).toBe(
      `X_FILE must be the path of a file that holds the secret (ENOENT), not ${JSON.stringify(missing)}`,
    )
    expect(refusal(file('empty', '\n'))).toContain('(it is empty)')
    expect(refusal('/dev/zero')).toContain('(it has more than 65536 bytes)')
    expect(refusal(folder)).toContain('(EISDIR)')
  })

  test('is for secrets alone', () => {
    expect(unknownVariables([{ one: text('X', '', '') }], { X_FILE: 'a' }, ['X'])).toHaveLength(1)
  })
})
