/**
 * No body of several parts keeps the main thread busy for more than 100 ms of processor time at a stretch, and twice as much of it costs at most two
 * and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { BOUNDARY, MIB, TIMEOUT, createUploader, ledgerOf, made, platformOfTests } from './protocol-support.ts'
import { repeated } from './wires.ts'

const platform = platformOfTests()

describe('bodies of several parts', () => {
  const { measure, requireLinear } = ledgerOf('multipart', platform)
  const BYTES = 16 * MIB
  const START = `--${BOUNDARY}\r\n`
  const END = `\r\n--${BOUNDARY}--\r\n`
  const FILE = 'Content-Disposition: form-data; name="file"; filename="a"\r\n'
  let send: Awaited<ReturnType<typeof createUploader>>['send']

  beforeAll(async () => {
    ;({ send } = await createUploader(platform()))
  })

  const many = (bytes: number, piece: string) => repeated(bytes, Buffer.from(piece))
  const around = (begin: string, middle: Buffer, end = '') =>
    Buffer.concat([Buffer.from(begin), middle, Buffer.from(end)])
  /** In the content of the file. */
  const file = (content: Buffer) => around(`${START}${FILE}\r\n`, content, END)
  /** In the head of the file. */
  const head = (fields: Buffer) => around(START + FILE, fields, `\r\n\r\nx${END}`)

  const BODIES: readonly [string, (bytes: number) => Buffer][] = [
    ['no part at all', (bytes) => many(bytes, 'a')],
    ['lines before the first part', (bytes) => around('', many(bytes, '\r\n'), `${START}${FILE}\r\nx${END}`)],
    ['beginnings of a boundary before the first part', (bytes) => many(bytes, '\r\n--')],
    ['boundaries that almost match', (bytes) => many(bytes, '\r\n--boundarx')],
    ['boundaries that almost match, without lines', (bytes) => many(bytes, '--boundar')],
    ['boundaries of a longer name', (bytes) => many(bytes, `\r\n--${BOUNDARY}x`)],
    ['dashes', (bytes) => many(bytes, '-')],
    ['empty parts', (bytes) => many(bytes, `--${BOUNDARY}\r\n\r\n\r\n`)],
    ['nothing but boundaries', (bytes) => many(bytes, START)],
    ['ends', (bytes) => many(bytes, `--${BOUNDARY}--\r\n`)],
    ['parts without a name', (bytes) => many(bytes, `${START}Content-Disposition: form-data\r\n\r\nx\r\n`)],
    ['fields', (bytes) => many(bytes, `${START}Content-Disposition: form-data; name="a"\r\n\r\nx\r\n`)],
    ['files of other names', (bytes) => many(bytes, `${START}${FILE.replace('file"', 'other"')}\r\nx\r\n`)],
    ['files without content', (bytes) => many(bytes, `${START}${FILE}\r\n\r\n`)],
    [
      'a field of much',
      (bytes) => around(`${START}Content-Disposition: form-data; name="a"\r\n\r\n`, many(bytes, 'x'), END),
    ],
    ['a field in the head of a part', (bytes) => head(many(bytes, 'x'))],
    ['fields in the head of a part', (bytes) => head(many(bytes, 'x: y\r\n'))],
    ['folded fields', (bytes) => head(many(bytes, 'x:\r\n y\r\n '))],
    ['colons', (bytes) => head(many(bytes, ':'))],
    ['blanks in a head', (bytes) => around(START, many(bytes, ' '), `\r\n\r\nx${END}`)],
    [
      'parameters',
      (bytes) => around(`${START}Content-Disposition: form-data`, many(bytes, '; a=b'), `\r\n\r\nx${END}`),
    ],
    [
      'a name of escapes',
      (bytes) => around(`${START}Content-Disposition: form-data; name="`, many(bytes, '\\"'), `"\r\n\r\nx${END}`),
    ],
    ['a name without an end', (bytes) => around(`${START}Content-Disposition: form-data; name="`, many(bytes, 'a'))],
    ['a file without an end', (bytes) => around(`${START}${FILE}\r\n`, many(bytes, 'a'))],
    ['a file of lines', (bytes) => file(many(bytes, '\r\n'))],
    ['a file of boundaries that almost match', (bytes) => file(many(bytes, '\r\n--boundarx'))],
    ['a file of beginnings of a boundary', (bytes) => file(many(bytes, '\r\n--bound'))],
    ['much behind the end', (bytes) => around(`${START}${FILE}\r\nx${END}`, many(bytes, 'a'))],
  ]

  test.each(BODIES)('%s', TIMEOUT, async (name, of) => {
    const bodyOf = made(BYTES, of)
    await requireLinear(name, BYTES, (bytes) => send(bodyOf(bytes)))
  })

  test('long boundaries, and bodies that almost have them', TIMEOUT, async () => {
    const boundary = 'a'.repeat(8000)
    for (const [name, piece] of [
      ['their letter', 'a'],
      ['all but their last letter', `\r\n--${'a'.repeat(7999)}b`],
      ['all but their first letter', `\r\n-b${'a'.repeat(7999)}`],
      ['themselves and one letter', `\r\n--${boundary}b`],
    ] as const) {
      const bodyOf = made(BYTES, (bytes) => many(bytes, piece))
      const type = `multipart/form-data; boundary=${boundary}`
      await requireLinear(`${name} of a long boundary`, BYTES, (bytes) => send(bodyOf(bytes), type))
    }
  })

  test('boundaries that are none', TIMEOUT, async () => {
    const body = many(MIB, 'a')
    for (const type of [
      'multipart/form-data',
      'multipart/form-data; boundary=',
      'multipart/form-data; boundary="',
      `multipart/form-data; ${'boundary=a; '.repeat(1000)}`,
      `multipart/form-data; boundary="${'\\"'.repeat(6000)}`,
      `multipart/form-data; ${'a'.repeat(12_000)}`,
      `multipart/form-data${' ;'.repeat(6000)}`,
    ])
      await measure(`the type ${type.slice(0, 40)}`, async () => expect((await send(body, type)).status).not.toBe(200))
  })
})
