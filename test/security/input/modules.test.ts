/**
 * Modules that are uploaded never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { MIB, TIMEOUT, createUploader, ledgerOf, made, platformOfTests } from './protocol-support.ts'
import { filled, leb, repeated, wasm } from './wires.ts'

const platform = platformOfTests()

describe('modules', () => {
  const { measure, requireLinear } = ledgerOf('modules', platform)
  const { section, vector, name: text, core } = wasm
  let upload: Awaited<ReturnType<typeof createUploader>>['upload']

  beforeAll(async () => {
    ;({ upload } = await createUploader(platform()))
  })

  const TYPE = [0x60, 0, 0]
  const BODY = [2, 0, 0x0b]
  const types = section(
    1,
    vector(1, () => TYPE),
  )
  const functions = section(
    3,
    vector(1, () => [0]),
  )
  const code = section(
    10,
    vector(1, () => BODY),
  )
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
  ]

  test.each(CORE)('a module of %s', TIMEOUT, async (name, size, of) => {
    const bytesOf = made(size, of)
    await requireLinear(`a module of ${name}`, size, (some) => upload(bytesOf(some)))
  })

  const { component } = wasm
  /** Of that many bytes: as many items as fit, each made of its number. */
  const items = (bytes: number, id: number, item: (index: number) => Buffer | number[]) => {
    const each = Buffer.from(item(0)).length
    return section(id, vector(Math.floor(bytes / each), item))
  }
  /** Built from the inside out, of heads alone. */
  const nested = (bytes: number): Buffer => {
    const heads: Buffer[] = []
    for (let length = 0; length < bytes;) {
      const head = Buffer.concat([component(), Buffer.from([4]), leb(length)])
      heads.push(head)
      length += head.length
    }
    return Buffer.concat([...heads.toReversed(), component()])
  }
  const number = (index: number) => String(index).padStart(7, '0')

  const COMPONENT_BYTES = MIB
  const COMPONENTS: readonly [string, (bytes: number) => Buffer][] = [
    ['components in components', nested],
    ['components side by side', (bytes) => component(repeated(bytes, section(4, component())))],
    ['core modules', (bytes) => component(repeated(bytes, section(1, core())))],
    ['core modules of functions', (bytes) => component(repeated(bytes, section(1, core(types, functions, code))))],
    ['core instances', (bytes) => component(items(bytes, 2, () => [1, 0]))],
    [
      'instances of one core module',
      (bytes) =>
        component(
          section(1, core()),
          items(bytes, 2, () => [0, 0, 0]),
        ),
    ],
    ['core types', (bytes) => component(items(bytes, 3, () => [0x60, 0, 0]))],
    ['instances', (bytes) => component(items(bytes, 5, () => [1, 0]))],
    ['types', (bytes) => component(items(bytes, 7, () => [0x7f]))],
    [
      'pairs of the pair before',
      (bytes) =>
        component(
          items(bytes, 7, (at) =>
            at === 0
              ? Buffer.from([0x6f, 2, 0x7f, 0x7f, 0, 0, 0, 0])
              : Buffer.concat([Buffer.from([0x6f, 2]), leb(at - 1, 3), leb(at - 1, 3)]),
          ),
        ),
    ],
    [
      'lists of the list before',
      (bytes) => component(items(bytes, 7, (at) => Buffer.concat([Buffer.from([0x70]), leb(Math.max(0, at - 1), 3)]))),
    ],
    [
      'records of many fields',
      (bytes) =>
        component(
          section(
            7,
            Buffer.concat([
              leb(1),
              Buffer.from([0x72]),
              vector(Math.floor(bytes / 9), (at) => Buffer.concat([text(`a${number(at)}`), Buffer.from([0x7f])])),
            ]),
          ),
        ),
    ],
    [
      'type sections',
      (bytes) =>
        component(
          repeated(
            bytes,
            section(
              7,
              vector(1, () => [0x7f]),
            ),
          ),
        ),
    ],
    [
      'aliases',
      (bytes) =>
        component(
          section(
            7,
            vector(1, () => [0x7f]),
          ),
          items(bytes, 6, () => [3, 2, 0, 0]),
        ),
    ],
    [
      'imports',
      (bytes) =>
        component(
          items(bytes, 10, (at) => Buffer.concat([Buffer.from([0]), text(`a${number(at)}`), Buffer.from([3, 1])])),
        ),
    ],
    [
      'exports',
      (bytes) =>
        component(
          section(
            7,
            vector(1, () => [0x7f]),
          ),
          items(bytes, 11, (at) => Buffer.concat([Buffer.from([0]), text(`a${number(at)}`), Buffer.from([3, 0, 0])])),
        ),
    ],
    [
      'one long name',
      (bytes) =>
        component(section(10, Buffer.concat([leb(1), Buffer.from([0]), text('a'.repeat(bytes)), Buffer.from([3, 1])]))),
    ],
    ['custom sections', (bytes) => component(repeated(bytes, section(0, text('a'))))],
    ['sections that do not end', (bytes) => component(repeated(bytes, Buffer.from([4, 0xff, 0xff, 0xff, 0x7f])))],
    ['bytes of no kind', (bytes) => component(Buffer.alloc(bytes, 0xff))],
  ]

  test.each(COMPONENTS)('a component of %s', TIMEOUT, async (name, of) => {
    const bytesOf = made(COMPONENT_BYTES, of)
    await requireLinear(`a component of ${name}`, COMPONENT_BYTES, (bytes) => upload(bytesOf(bytes)))
  })

  const exported = (count: number) =>
    core(
      types,
      functions,
      section(
        7,
        vector(count, (at) => Buffer.concat([text(number(at)), Buffer.from([0, 0])])),
      ),
      code,
    )

  test('a module of exports', TIMEOUT, async () => {
    const bytesOf = made(100_000, exported)
    await requireLinear('a module of exports', 100_000, (count) => upload(bytesOf(count)))
  })

  test('a module as large as is taken, and a larger one', TIMEOUT, async () => {
    const largest = (bytes: number) =>
      core(types, functions, code, section(0, Buffer.concat([text('a'), Buffer.alloc(bytes, 7)])))
    const bytesOf = made(64 * MIB - 4096, largest)
    await requireLinear('a large module', 64 * MIB - 4096, (bytes) => upload(bytesOf(bytes)))
    const tooLarge = largest(64 * MIB)
    await measure('a module that is too large', async () =>
      expect(await upload(tooLarge)).toMatchObject({ status: 413 }),
    )
  })

  test('a module that is pushed to a registry', TIMEOUT, async () => {
    const path = '/modules?reference=registry.example/a:1'
    const headers = { authorization: platform().bearer, 'content-type': 'application/wasm' }
    const bodyOf = made(64 * MIB - 4096, (bytes) => filled(bytes, () => Buffer.alloc(MIB, 7)).subarray(0, bytes))
    await requireLinear('a module that is pushed', 64 * MIB - 4096, async (bytes) => {
      const { status, text: said } = await platform().send({ method: 'PUT', path, headers, body: bodyOf(bytes) })
      expect([status, said]).toEqual([expect.toBeOneOf([400, 403, 413, 422, 503, 504]), said])
    })
  })
})
