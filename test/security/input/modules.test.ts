/**
 * Modules that are uploaded never keep the main thread busy for more than 100 ms of processor time at a stretch, and twice as many of
 * them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { leb, wasm } from './wires.ts'

const platform = platformOfTests()

describe('modules', () => {
  const { requireLinear } = ledgerOf('modules', platform)
  const { section, vector, name: text, core } = wasm
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
    await requireLinear(`a module of ${name}`, size, (some) => upload(of(some)))
  })
})
