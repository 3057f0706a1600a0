/** Settings: read once, refused together, never repeated where they are secret (contract section 15). */
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
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
  optionalInteger,
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
  ])('%s reads what it documents', (_name, one, cases) => {
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
  ])('of another form is refused with what would be accepted', (one, wrong) => {
    for (const value of wrong) expect(() => read(one, value), value).toThrow(/^X must be .*, not "/)
  })

  test('may have older names; the first that is given counts', () => {
    const one = text('NEW', 'none', '', { aliases: ['OLD', 'OLDER'] })
    expect(readConfig({ one }, { OLDER: 'c', OLD: 'b' }).one).toBe('b')
    expect(readConfig({ one }, { OLD: 'b', NEW: 'a' }).one).toBe('a')
    expect(readConfig({ one }, { NEW: '', OLD: 'b' }).one).toBe('b')
  })
})

test('all faults are told at once, one line each, and name the variable that was given', () => {
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

test('what was read cannot be changed', () => {
  const config = readConfig({ one: text('X', 'a', '') }, {})
  expect(() => Object.assign(config, { one: 'b' })).toThrow(TypeError)
})

test('a secret prints as [redacted] whatever way it is printed', () => {
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

test('a misspelt variable is told with the nearest name, and those of other programs are not', () => {
  const settings = { one: port('SKEIN_HTTP_PORT', 1, '') }
  expect(
    unknownVariables([settings], { SKEIN_HTTP_PROT: '1', SKEIN_HTTP_ODD: '1', PATH: 'a', SKEIN_HTTP_PORT: '1' }, [
      'SKEIN_HTTP_',
    ]),
  ).toEqual(['SKEIN_HTTP_ODD is not a setting', 'SKEIN_HTTP_PROT is not a setting; did you mean SKEIN_HTTP_PORT?'])
  // The command line in the same shell has its own.
  expect(unknownVariables([settings], { SKEIN_MANAGER_URL: 'x', SKEIN_TOKEN: 'x' }, ['SKEIN_'])).toEqual([])
})
