/**
 * A runner process: its main thread loads modules and forwards messages, its threads run guests. It trusts its parent and
 * decides nothing: deadlines, memory and fairness are enforced by the parent (`pool.ts`), because a process that runs
 * guest code cannot be trusted to supervise itself. Orders and modules arrive on standard input, answers go to standard
 * output.
 */
import type { CompiledModule } from '#guests/calls/index.ts'
import { confirmIsolation } from '../isolation/confirm.ts'
import type { CompiledComponent } from '../runtime/component.ts'
import { compileModule } from './compile.ts'
import { FRAME, FrameReader, encodeMessages } from './frames.ts'
import { GuestThreads } from './guest-threads.ts'
import type { FromRunner, ToRunner } from './messages.ts'
import { ModuleReceiver } from './module-receiver.ts'
import type { ReceivedModule } from './module-receiver.ts'

const RESIDENT_INTERVAL_MS = 100
/** The parent is trusted; the limit contains a bug of the parent. */
const MAX_FRAME_BYTES = 1024 * 1024 * 1024

function serveRunner(): void {
  const modules = new Map<string, CompiledModule | CompiledComponent>()
  let outbox: FromRunner[] = []
  const send = (message: FromRunner) => {
    outbox.push(message)
    if (outbox.length > 1) return
    setImmediate(() => {
      const batch = outbox
      outbox = []
      process.stdout.write(encodeMessages(batch))
    })
  }
  const threads = new GuestThreads(send)

  const loadModule = async ({ order, files }: ReceivedModule): Promise<void> => {
    const { moduleKey } = order
    try {
      modules.set(moduleKey, await compileModule(order, files))
      send({ type: 'module_ready', moduleKey })
    } catch (error) {
      const reason = error instanceof RangeError ? 'oom' : 'module_invalid'
      send({ type: 'module_ready', moduleKey, reason, refused: error instanceof Error ? error.message : String(error) })
    }
  }

  // A rejection ends the process: its parent requeues its runs.
  const intake = new ModuleReceiver((received) => void loadModule(received))

  const handle = (message: ToRunner): void | Promise<void> => {
    switch (message.type) {
      case 'open_thread':
        return threads.open(message.thread)
      case 'run': {
        const compiled = modules.get(message.order.moduleKey)
        if (compiled === undefined) throw new Error('a run arrived before its module')
        return threads.run(message.thread, message.order, compiled)
      }
      case 'recall':
        return threads.recall(message.thread)
      case 'end_thread':
        return threads.kill(message.thread)
      case 'load_module':
        return intake.order(message.module)
      case 'guest_reply': {
        const { sequence, callId, reply } = message
        return threads.reply(message.thread, { sequence, callId, reply })
      }
      case 'drop_module':
        modules.delete(message.moduleKey)
        return threads.dropModule(message.moduleKey)
    }
  }

  const reader = new FrameReader(MAX_FRAME_BYTES, (kind, payload) => {
    if (kind === FRAME.module) return intake.take(payload)
    for (const message of JSON.parse(payload.toString()) as ToRunner[]) void handle(message)
    threads.flush()
  })
  process.stdin.on('data', (chunk: Buffer) => reader.push(chunk))
  // The parent exited or closed the stream: its runs have no receiver.
  process.stdin.on('end', () => process.exit(0))
  if (process.platform !== 'linux') {
    setInterval(() => send({ type: 'resident', residentBytes: process.memoryUsage.rss() }), RESIDENT_INTERVAL_MS)
  }
  send({ type: 'ready' })
}

confirmIsolation()
serveRunner()
