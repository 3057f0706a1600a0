/**
 * Modules that are uploaded or pushed, and the bodies that they come in, never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { KIB, MIB, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { filled, leb, repeated, wasm } from './wires.ts'

const platform = platformOfTests()

describe('modules', () => {
  const { requireLinear } = ledgerOf('modules', platform)
  const none = Buffer.alloc(0)
  const { section, vector, name: text, core, component } = wasm
  let taskId: string

  beforeAll(async () => {
    const { status, text: answer } = await platform().send({
      method: 'POST',
      path: '/tasks',
      headers: { authorization: platform().bearer, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'hostile', domain_id: platform().domainId }),
    })
    expect(status).toBe(201)
    taskId = (JSON.parse(answer) as { id: string }).id
  })

  const BOUNDARY = 'boundary'
  const part = (bytes: Buffer) =>
    Buffer.concat([
      Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n`),
      bytes,
      Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
    ])
  const uploadBody = (body: Buffer, boundary = BOUNDARY) =>
    platform().send({
      method: 'PUT',
      path: `/tasks/${taskId}/upload`,
      headers: { authorization: platform().bearer, 'content-type': `multipart/form-data; boundary=${boundary}` },
      body,
    })
  const upload = (bytes: Buffer) => uploadBody(part(bytes))
  const push = (bytes: Buffer) =>
    platform().send({
      method: 'PUT',
      path: `/modules?reference=${encodeURIComponent('registry.invalid/a:b')}&domain_id=${platform().domainId}`,
      headers: {
        authorization: platform().bearer,
        'content-type': 'application/wasm',
        'registry-authorization': `Basic ${Buffer.from('a:b').toString('base64')}`,
      },
      body: bytes,
    })

  const TYPE = [0x60, 0, 0]
  const BODY = [2, 0, 0x0b]
  const types = section(
    1,
    vector(1, () => TYPE),
  )
  const wide = section(
    1,
    vector(1, () => Buffer.concat([Buffer.from([0x60]), vector(1000, () => [0x7f]), Buffer.from([0])])),
  )
  const functions = section(
    3,
    vector(1, () => [0]),
  )
  const code = section(
    10,
    vector(1, () => BODY),
  )
  const importOf = (index: number) =>
    Buffer.concat([text('wasi_snapshot_preview1'), text(`f${index}`), Buffer.from([0, 0])])
  const exportOf = (index: number) => Buffer.concat([text(`e${index}`), Buffer.from([0, 0])])

  test('an honest module is accepted', async () => {
    const module = core(
      types,
      functions,
      section(
        7,
        vector(1, () => Buffer.concat([text('run'), Buffer.from([0, 0])])),
      ),
      code,
    )
    expect(await upload(module)).toMatchObject({ status: 200 })
  })

  const CORE: readonly [string, number, (count: number) => Buffer][] = [
    [
      'functions',
      100_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(count, () => [0]),
          ),
          section(
            10,
            vector(count, () => BODY),
          ),
        ),
    ],
    [
      'functions, indices in their long form',
      100_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(count, () => leb(0, 5)),
          ),
          section(
            10,
            vector(count, () => Buffer.concat([leb(2, 5), Buffer.from([0, 0x0b])])),
          ),
        ),
    ],
    [
      'types',
      100_000,
      (count) =>
        core(
          section(
            1,
            vector(count, () => TYPE),
          ),
        ),
    ],
    [
      'types of a thousand parameters',
      20_000,
      (count) =>
        core(
          section(
            1,
            vector(count, () => Buffer.concat([Buffer.from([0x60]), vector(1000, () => [0x7f]), Buffer.from([0])])),
          ),
        ),
    ],
    ['imports', 10_000, (count) => core(types, section(2, vector(count, importOf)))],
    ['too many imports', 100_000, (count) => core(types, section(2, vector(count, importOf)))],
    ['exports', 10_000, (count) => core(types, functions, section(7, vector(count, exportOf)), code)],
    ['too many exports', 100_000, (count) => core(types, functions, section(7, vector(count, exportOf)), code)],
    [
      'exports of a thousand parameters',
      10_000,
      (count) => core(wide, functions, section(7, vector(count, exportOf)), code),
    ],
    ['custom sections', 9_000, (count) => core(...Array.from({ length: count }, () => section(0, text('a'))))],
    ['a huge custom section', 60 * MIB, (bytes) => core(section(0, Buffer.concat([text('a'), Buffer.alloc(bytes)])))],
    [
      'a name of a section that is huge',
      60 * MIB,
      (bytes) => core(section(0, Buffer.concat([leb(bytes), Buffer.alloc(bytes, 'a')]))),
    ],
    [
      'functions without end',
      60 * MIB,
      (bytes) => core(types, section(3, Buffer.concat([leb(bytes / 2), Buffer.alloc(bytes / 2)]))),
    ],
    [
      'globals',
      10 * MIB,
      (bytes) => core(section(6, Buffer.concat([leb(bytes / 5), repeated(bytes, [0x7f, 0, 0x41, 0, 0x0b])]))),
    ],
    ['sections of nothing', 200_000, (count) => core(repeated(count, [11, 0]))],
    [
      'code again and again',
      9_000,
      (count) =>
        core(
          types,
          section(
            3,
            vector(100_000, () => [0]),
          ),
          repeated(count * 2, [10, 0]),
        ),
    ],
  ]

  test.each(CORE)('a module of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a module of ${name}`, size, (some) => upload(of(some)))
  })

  const nested = (depth: number): Buffer => (depth === 0 ? component() : component(section(4, nested(depth - 1))))
  /** A type of instance within the other. */
  const nestedType = (depth: number): Buffer =>
    depth === 0 ? Buffer.from([0x42, 0]) : Buffer.concat([Buffer.from([0x42, 1, 1]), nestedType(depth - 1)])
  const label = (index: number) => text(`l${index}`)
  const COMPONENTS: readonly [string, number, (count: number) => Buffer][] = [
    ['nested components', 19, nested],
    ['components nested too deep', 2_000, nested],
    ['nested types', 19, (depth) => component(section(7, Buffer.concat([leb(1), nestedType(depth)])))],
    ['types nested too deep', 20_000, (depth) => component(section(7, Buffer.concat([leb(1), nestedType(depth)])))],
    ['components side by side', 50_000, (count) => component(repeated(count * 10, section(4, component())))],
    [
      'instances of a component',
      100_000,
      (count) =>
        component(
          section(4, component()),
          section(
            5,
            vector(count, () => [0, 0, 0]),
          ),
        ),
    ],
    [
      'instances of components of instances',
      40_000,
      (count) => {
        const inner = component(
          section(4, component()),
          section(
            5,
            vector(count / 2, () => [0, 0, 0]),
          ),
        )
        return component(
          section(4, inner),
          section(
            5,
            vector(count / 2, () => [0, 0, 0]),
          ),
        )
      },
    ],
    [
      'instances of nothing',
      100_000,
      (count) =>
        component(
          section(
            5,
            vector(count, () => [1, 0]),
          ),
        ),
    ],
    [
      'types',
      150_000,
      (count) =>
        component(
          section(
            7,
            vector(count, () => [0x73]),
          ),
        ),
    ],
    [
      'types that double',
      40,
      (count) =>
        component(
          section(
            7,
            vector(count, (index) =>
              index === 0 ? [0x73] : Buffer.concat([Buffer.from([0x6f, 2]), leb(index - 1), leb(index - 1)]),
            ),
          ),
        ),
    ],
    [
      'exports of types that double',
      24,
      (count) =>
        component(
          section(
            7,
            vector(count, (index) =>
              index === 0 ? [0x73] : Buffer.concat([Buffer.from([0x6f, 2]), leb(index - 1), leb(index - 1)]),
            ),
          ),
          section(
            7,
            vector(1, () => Buffer.concat([Buffer.from([0x40, 1]), label(0), leb(count - 1), Buffer.from([1, 0])])),
          ),
          section(
            10,
            vector(1, () => Buffer.concat([Buffer.from([0]), label(1), Buffer.from([1]), leb(count)])),
          ),
        ),
    ],
    [
      'records of many fields',
      90_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () =>
              Buffer.concat([
                Buffer.from([0x72]),
                vector(count, (index) => Buffer.concat([label(index), Buffer.from([0x73])])),
              ]),
            ),
          ),
        ),
    ],
    [
      'long names of fields',
      4_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () => Buffer.concat([Buffer.from([0x6e]), vector(count, () => text(`a${'-a'.repeat(500)}`))])),
          ),
        ),
    ],
    [
      'imports',
      90_000,
      (count) =>
        component(
          section(
            7,
            vector(1, () => [0x42, 0]),
          ),
          section(
            10,
            vector(count, (index) => Buffer.concat([Buffer.from([0]), label(index), Buffer.from([5, 0])])),
          ),
        ),
    ],
    ['core modules', 20_000, (count) => component(repeated(count * 10, section(1, core())))],
    [
      'core modules of functions',
      20,
      (count) =>
        component(
          ...Array.from({ length: count }, () =>
            section(
              1,
              core(
                types,
                section(
                  3,
                  vector(100_000, () => [0]),
                ),
                section(
                  10,
                  vector(100_000, () => BODY),
                ),
              ),
            ),
          ),
        ),
    ],
    ['custom sections', 150_000, (count) => component(repeated(count * 4, section(0, text('a'))))],
  ]

  test.each(COMPONENTS)('a component of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a component of ${name}`, size, (some) => upload(of(some)))
  })

  test.each(
    [...CORE, ...COMPONENTS].filter(([name]) =>
      /^(functions|types|exports|code again and again|a huge custom section|types of a thousand|imports|records)/.test(
        name,
      ),
    ),
  )('pushed: %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`pushed: ${name}`, size, (some) => push(of(some)))
  })

  test.each<[string, number, (bytes: number) => Buffer]>([
    [
      'parts',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          repeated(bytes, Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n`)),
          Buffer.from(`--${BOUNDARY}--\r\n`),
        ]),
    ],
    ['empty parts', 4 * MIB, (bytes) => repeated(bytes, Buffer.from(`--${BOUNDARY}\r\n\r\n\r\n`))],
    ['beginnings of boundaries', 16 * MIB, (bytes) => part(repeated(bytes, Buffer.from('\r\n--boundar')))],
    ['ends of lines', 16 * MIB, (bytes) => part(repeated(bytes, Buffer.from('\r\n')))],
    ['dashes', 16 * MIB, (bytes) => part(Buffer.alloc(bytes, '-'))],
    [
      'fields of a head',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\n`),
          filled(bytes, (index) => Buffer.from(`x-${index}: a\r\n`)),
          Buffer.from('\r\n'),
        ]),
    ],
    [
      'one long field of a head',
      4 * MIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${'a'.repeat(bytes)}"\r\n\r\n`),
        ]),
    ],
    [
      'parameters',
      60 * KIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data${'; a="b"'.repeat(bytes / 7)}\r\n\r\n`),
          part(none),
        ]),
    ],
    [
      'escapes',
      60 * KIB,
      (bytes) =>
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${'\\"'.repeat(bytes / 2)}"\r\n\r\n`),
          part(none),
        ]),
    ],
    ['text before the first part', 16 * MIB, (bytes) => Buffer.concat([Buffer.alloc(bytes, '\r'), part(none)])],
  ])('a form of %s', TIMEOUT, async (name, size, of) => {
    await requireLinear(`a form of ${name}`, size, (bytes) => uploadBody(of(bytes)))
  })

  test('types of bodies with long parameters', TIMEOUT, async () => {
    for (const [name, boundary] of [
      ['a boundary', (length: number) => 'b'.repeat(length)],
      ['parameters', (length: number) => `b${'; a="b"'.repeat(length / 7)}`],
      ['escapes', (length: number) => `"${'\\"'.repeat(length / 2)}"`],
    ] as const)
      await requireLinear(`20 types with long ${name}`, 14_000, async (length) => {
        for (let time = 0; time < 20; time++) await uploadBody(part(none), boundary(length))
      })
  })
})
