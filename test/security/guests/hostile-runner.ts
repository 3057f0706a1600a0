/**
 * Stands for a runner that a guest has taken over. It loads modules and completes runs like a real one, but for runs of the
 * task `hostile`: then it writes the bytes of the run's standard input, in base64, to its parent as they are, with the
 * numbers of the run put in.
 */
import { FRAME, FrameReader, encodeMessages } from '#worker/runner/frames.ts'
import type { RunOrder, ToRunner } from '#worker/runner/messages.ts'

const say = (message: unknown) => process.stdout.write(encodeMessages([message]))

function answer(lane: number, { sequence, taskName, stdin }: RunOrder): void {
  if (taskName === 'hostile') {
    // As long as what it stands for: the lengths of frames stay right.
    const number = String(sequence).padStart('"SEQUENCE"'.length)
    const bytes = Buffer.from(stdin, 'base64').toString('latin1').replaceAll('"SEQUENCE"', number)
    process.stdout.write(Buffer.from(bytes, 'latin1'))
    return
  }
  // The task `patient` never ends.
  if (taskName === 'patient') return
  say({
    type: 'ended',
    lane,
    sequence,
    outcome: { state: 'completed', results: [1] },
    durationMs: 1,
    isStreamed: false,
  })
}

const reader = new FrameReader(1 << 30, (kind, payload) => {
  if (kind !== FRAME.messages) return
  for (const message of JSON.parse(payload.toString()) as ToRunner[]) {
    if (message.type === 'open_lane') say({ type: 'lane_ready', lane: message.lane })
    if (message.type === 'load_module') say({ type: 'module_ready', moduleKey: message.module.moduleKey })
    if (message.type === 'run') answer(message.lane, message.order)
    if (message.type === 'kill_lane') {
      say({ type: 'lane_killed', lane: message.lane })
      say({ type: 'lane_ready', lane: message.lane })
    }
  }
})
process.stdin.on('data', (chunk: Buffer) => reader.push(chunk)).on('end', () => process.exit(0))
say({ type: 'ready' })
