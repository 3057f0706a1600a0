/**
 * Stands for a runner that a guest has taken over. It loads modules and completes runs like a real one, but for runs of the
 * task `hostile`: then it writes the bytes of the run's standard input, in base64, to its parent as they are, with the
 * numbers of the run put in.
 */
import { bytesOf } from '#core/bytes/index.ts'
import { FRAME, FrameReader, encodeMessages } from '#worker/runner/frames.ts'
import type { RunOrder, ToRunner } from '#worker/runner/messages.ts'

/** A module with this in its digest is never loaded. */
const ENDLESS = '5'.repeat(64)
const PART = 10_000
const say = (message: unknown) => process.stdout.write(encodeMessages([message]))

function answer(thread: number, { sequence, call }: RunOrder): void {
  const { programName, inputs } = call
  const stdin = Buffer.from(bytesOf(call.stdin)).toString()
  if (programName === 'hostile') {
    // As long as what it stands for: the lengths of frames stay right.
    const number = String(sequence).padStart('"SEQUENCE"'.length)
    const bytes = Buffer.from(stdin, 'base64').toString('latin1').replaceAll('"SEQUENCE"', number)
    process.stdout.write(Buffer.from(bytes, 'latin1'))
    return
  }
  // The task `patient` never ends.
  if (programName === 'patient') return
  // `repeat`: a frame of so many bytes as its first input says, with the text of its standard input again and again.
  if (programName === 'repeat') return repeat(stdin, Number(inputs[0]))
  // `flood`: the same bytes again and again, until the process is killed.
  if (programName === 'flood' || programName === 'flood-errors') {
    const number = String(sequence).padStart('"SEQUENCE"'.length)
    const text = Buffer.from(stdin, 'base64').toString('latin1').replaceAll('"SEQUENCE"', number)
    const bytes = Buffer.from(text, 'latin1')
    const stream = programName === 'flood' ? process.stdout : process.stderr
    const more = () => void stream.write(bytes, more)
    more()
    return
  }
  say({
    type: 'ended',
    thread,
    sequence,
    outcome: { state: 'completed', results: [1] },
    durationMs: 1,
    cpuMs: 1,
    memoryBytes: 0,
    isStreamed: false,
  })
}

/** Written in parts: a runner has not as much memory as the frame has bytes. */
function repeat(text: string, bytes: number): void {
  const count = Math.floor((bytes - 3) / (text.length + 1))
  const header = Buffer.alloc(5)
  header.writeUInt8(FRAME.messages, 0)
  header.writeUInt32LE(count * (text.length + 1) + 3, 1)
  process.stdout.write(Buffer.concat([header, Buffer.from('[')]))
  const part = Buffer.from(`${text},`.repeat(PART))
  let left = count
  const more = () => {
    if (left === 0) return void process.stdout.write('0]')
    const now = Math.min(left, PART)
    left -= now
    process.stdout.write(part.subarray(0, now * (text.length + 1)), more)
  }
  more()
}

const reader = new FrameReader(1 << 30, (kind, payload) => {
  if (kind !== FRAME.messages) return
  for (const message of JSON.parse(payload.toString()) as ToRunner[]) {
    if (message.type === 'open_thread') say({ type: 'thread_ready', thread: message.thread })
    if (message.type === 'load_module' && !message.module.moduleKey.includes(ENDLESS))
      say({ type: 'module_ready', moduleKey: message.module.moduleKey })
    if (message.type === 'run') answer(message.thread, message.order)
    if (message.type === 'end_thread') {
      say({ type: 'thread_ended', thread: message.thread })
      say({ type: 'thread_ready', thread: message.thread })
    }
  }
})
process.stdin.on('data', (chunk: Buffer) => reader.push(chunk)).on('end', () => process.exit(0))
say({ type: 'ready' })
