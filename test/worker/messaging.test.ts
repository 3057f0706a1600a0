/** What guests ask of channels, their secrets and what triggered them (task-manager.md sections 4 and 5). */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { GrantKind, GrantSchema, OnLost, WireTaskState } from '#proto/index.ts'
import type { Grant } from '#proto/index.ts'
import { resolveTopic } from '#worker/runs/guest-calls.ts'
import { JoinedWorker } from './joined-worker.ts'
import { componentFromText, moduleFromText, until } from './pool.ts'
import { runRef } from './scripted-manager.ts'

const grant = (kind: GrantKind, more: Partial<Grant> = {}) =>
  create(GrantSchema, { kind, channelId: 'channel-1', subtopic: '', name: 'alarms', ...more } as never)
const PUBLISH = [grant(GrantKind.PUBLISH)]

/** Publishes `[{"n":"a","v":1}]` to `topic` and returns the code; the sentence of a refusal goes to stdout. */
const publisher = (topic: string) =>
  moduleFromText(`(module
    (import "skein" "publish" (func $publish (param i32 i32 i32 i32) (result i32)))
    (import "skein" "last_error" (func $error (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "${topic}") (data (i32.const 200) "[{\\"n\\":\\"a\\",\\"v\\":1}]")
    (func (export "run") (result i32) (local $code i32)
      (local.set $code (call $publish (i32.const 100) (i32.const ${topic.length}) (i32.const 200) (i32.const 17)))
      (if (local.get $code) (then
        (i32.store (i32.const 0) (i32.const 300))
        (i32.store (i32.const 4) (call $error (i32.const 300) (i32.const 200)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
      (local.get $code)))`)

const output = (joined: JoinedWorker, runId: string) =>
  joined.manager
    .heard('logChunk')
    .filter(({ run }) => run?.runId === runId)
    .map(({ data }) => Buffer.from(data).toString())
    .join('')

describe('a core module', () => {
  test('publishes through the manager with its fence, and continues when the message is stored', async () => {
    await using joined = await JoinedWorker.start()
    const { manager } = joined
    manager.assign(await publisher('alarms/pump'), 'run-1', { grants: PUBLISH, run: runRef('run-1', 7n) })
    await until(() => manager.heard('guestCall').length > 0)
    const [asked] = manager.heard('guestCall')
    expect(asked).toMatchObject({ run: { runId: 'run-1', fence: 7n }, callId: 1 })
    expect(asked?.call).toMatchObject({ case: 'publish', value: { channelId: 'channel-1', subtopic: 'pump' } })
    const payload = asked?.call.case === 'publish' ? asked.call.value.payload : []
    expect(Buffer.from(payload).toString()).toBe('[{"n":"a","v":1}]')
    expect(manager.results()).toEqual([])
    const reply = { run: runRef('run-1', 7n), callId: 1, outcome: { case: 'published', value: {} } } as const
    manager.tell({ case: 'guestReply', value: reply })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[0]' })
  })

  test('repeats the request with the same number when the stream breaks before the response', async () => {
    await using joined = await JoinedWorker.start()
    const { manager } = joined
    manager.assign(await publisher('alarms'), 'run-1', { grants: PUBLISH })
    await until(() => manager.heard('guestCall').length > 0)
    manager.breakStream()
    await until(() => manager.heard('guestCall').length >= 2)
    expect(new Set(manager.heard('guestCall').map(({ callId }) => callId))).toEqual(new Set([1]))
    const reply = { run: runRef('run-1'), callId: 1, outcome: { case: 'published', value: {} } } as const
    manager.tell({ case: 'guestReply', value: reply })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[0]' })
  })

  test.each([
    ['without a grant', [], 'alarms'],
    ['with a grant to read', [grant(GrantKind.READ)], 'alarms'],
    ['for another channel', PUBLISH, 'other'],
    ['outside of the granted subtopic', [grant(GrantKind.PUBLISH, { subtopic: 'pump' })], 'alarms/valve'],
  ])('is refused %s without a request to the manager', async (_, grants, topic) => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign(await publisher(topic), 'run-1', { grants })
    expect(await joined.manager.result('run-1')).toMatchObject({ resultsJson: '[-2]' })
    expect(joined.manager.heard('guestCall')).toEqual([])
    expect(output(joined, 'run-1')).toBe(`the task has no grant to publish to "${topic}"`)
  })

  test('receives the kind of a refusal as a code, and its message on request', async () => {
    await using joined = await JoinedWorker.start()
    const { manager } = joined
    manager.assign(await publisher('alarms'), 'run-1', { grants: PUBLISH })
    await until(() => manager.heard('guestCall').length > 0)
    const error = { kind: 'stale', message: 'another worker has this run' }
    const reply = { run: runRef('run-1'), callId: 1, outcome: { case: 'error', value: error } } as const
    manager.tell({ case: 'guestReply', value: reply })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[-7]' })
    expect(output(joined, 'run-1')).toBe('another worker has this run')
  })

  test('reads stored records into its buffer', async () => {
    await using joined = await JoinedWorker.start()
    const { manager } = joined
    const query = '{"topic":"alarms","name":"t","from":10,"limit":2}'
    const reader = await moduleFromText(`(module
      (import "skein" "read" (func $read (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 100) ${JSON.stringify(query).replaceAll('\\"', '\\22')})
      (func (export "run") (result i32 i32)
        (call $read (i32.const 100) (i32.const ${query.length}) (i32.const 400) (i32.const 4)) (i32.load8_u (i32.const 400))))`)
    manager.assign(reader, 'run-1', { grants: [grant(GrantKind.READ)] })
    await until(() => manager.heard('guestCall').length > 0)
    expect(manager.heard('guestCall')[0]?.call).toMatchObject({
      case: 'read',
      value: { channelId: 'channel-1', name: 't', fromSeconds: 10, limit: 2 },
    })
    const records = Buffer.from('[{"n":"t","v":1}]')
    const reply = { run: runRef('run-1'), callId: 1, outcome: { case: 'recordsJson', value: records } } as const
    manager.tell({ case: 'guestReply', value: reply })
    // The whole length, and as much as fits: 91 is "[".
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[17,91]' })
  })

  test('that waits forever for a response ends with its timeout, and others continue', async () => {
    await using joined = await JoinedWorker.start({ SKEIN_WORKER_SLOTS: '1' })
    const { manager } = joined
    const limits = { timeoutMs: 200n, memoryLimitBytes: 1048576n, maxOutputBytes: 1000n, maxResultBytes: 1000n }
    manager.assign(await publisher('alarms'), 'run-1', { grants: PUBLISH, limits: limits as never })
    expect(await manager.result('run-1')).toMatchObject({ state: WireTaskState.FAILED })
    manager.assign('add', 'run-2', { inputsJson: '[1,2]' })
    expect(await manager.result('run-2')).toMatchObject({ resultsJson: '[3]' })
  })
})

test('a component publishes through its interface and receives a refusal as an error', async () => {
  await using joined = await JoinedWorker.start()
  const { manager } = joined
  const component = await componentFromText(`(component
    (import "skein:messaging/types@0.1.0" (instance $types
      (type $e (record (field "kind" string) (field "message" string))) (export "error" (type (eq $e)))))
    (alias export $types "error" (type $error))
    (import "skein:messaging/producer@0.1.0" (instance $producer
      (alias outer 1 $error (type $e0)) (export "error" (type $e (eq $e0))) (type $l (list u8))
      (export "send" (func (param "topic" string) (param "message" $l) (result (result (error $e)))))))
    (core module $libc (memory (export "memory") 1) (global $end (mut i32) (i32.const 1024))
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32) (local.set $at (global.get $end))
        (global.set $end (i32.add (local.get $at) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8)))) (local.get $at)))
    (core instance $l (instantiate $libc))
    (core func $send (canon lower (func $producer "send") (memory (core memory $l "memory")) (realloc (core func $l "realloc"))))
    (core instance $host (export "send" (func $send)))
    (core module $m (import "libc" "memory" (memory 1)) (import "host" "send" (func $send (param i32 i32 i32 i32 i32)))
      (data (i32.const 100) "alarms") (data (i32.const 200) "[]")
      (func (export "f") (result i32)
        (call $send (i32.const 100) (i32.const 6) (i32.const 200) (i32.const 2) (i32.const 0)) (i32.load8_u (i32.const 0))))
    (core instance $i (instantiate $m (with "libc" (instance $l)) (with "host" (instance $host))))
    (type $t (func (result bool))) (func $f (type $t) (canon lift (core func $i "f"))) (export "run" (func $f)))`)
  manager.assign(component, 'run-1', { grants: PUBLISH })
  await until(() => manager.heard('guestCall').length > 0)
  const outcome = { case: 'error', value: { kind: 'rate_limited', message: 'later' } } as const
  manager.tell({ case: 'guestReply', value: { run: runRef('run-1'), callId: 1, outcome } })
  expect(await manager.result('run-1')).toMatchObject({ resultsJson: 'true' })
  manager.assign(component, 'run-2', { grants: [] })
  expect(await manager.result('run-2')).toMatchObject({ resultsJson: 'true' })
  expect(manager.heard('guestCall').filter(({ run }) => run?.runId === 'run-2')).toEqual([])
})

describe('a topic', () => {
  const grants = [
    grant(GrantKind.READ, { subtopic: 'pump' }),
    grant(GrantKind.READ, { channelId: 'channel-2', name: '', subtopic: 'a/b' }),
  ]
  test.each([
    ['alarms', { channelId: 'channel-1', subtopic: 'pump' }],
    ['channel-1/pump/4', { channelId: 'channel-1', subtopic: 'pump.4' }],
    ['alarms/pumpernickel', undefined],
    ['channel-2/a/b/c', { channelId: 'channel-2', subtopic: 'a.b.c' }],
    ['channel-2/a', undefined],
    ['', undefined],
    ['channel-3', undefined],
  ])('%j', (topic, place) => {
    expect(resolveTopic(topic, grants)).toEqual(place)
  })

  test('that is empty selects the only channel', () => {
    expect(resolveTopic('', PUBLISH)).toEqual({ channelId: 'channel-1', subtopic: '' })
  })
})

test('a command reads its trigger from stdin and its secrets from the environment, which never reach the disk', async () => {
  await using joined = await JoinedWorker.start()
  const echo = await moduleFromText(`(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
      (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const 100))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (i32.store (i32.const 4) (i32.load (i32.const 8)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
      (drop (call $environ (i32.const 400) (i32.const 500)))
      (i32.store (i32.const 0) (i32.const 500)) (i32.store (i32.const 4) (i32.const 13))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))))`)
  const held = { onLost: OnLost.WAIT, secrets: { KEY: 'hush-hush' }, triggerJson: '{"records":[]}' }
  joined.manager.assign(echo, 'run-1', held)
  expect(JSON.parse((await joined.manager.result('run-1')).resultsJson)).toMatchObject({
    stdout: '{"records":[]}KEY=hush-hush',
  })
  joined.manager.assign('endless', 'run-2', held)
  await joined.manager.running('run-2')
  expect(readdirSync(join(joined.folder, 'worker', 'assignments'))).toEqual([])
})
