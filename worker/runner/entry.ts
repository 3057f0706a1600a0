/**
 * A runner process: its main thread loads modules and passes messages on, its lanes run guests. It believes its parent
 * in everything and decides nothing: deadlines, memory and fairness are the parent's (`pool.ts`), because a process that
 * runs guest code cannot be trusted to watch itself. Orders and modules come on standard input, answers go to standard output.
 */
import { confirmIsolation } from '../isolation/confirm.ts'
import type { CompiledComponent } from '../runtime/component.ts'
import type { CompiledModule } from '../runtime/core-module.ts'
import { compileModule } from './compile.ts'
import { FRAME, FrameReader, encodeMessages } from './frames.ts'
import { Lanes } from './lanes.ts'
import type { FromRunner, ToRunner } from './messages.ts'
import { ModuleIntake } from './module-intake.ts'
import type { ReceivedModule } from './module-intake.ts'

const RESIDENT_INTERVAL_MS = 100
/** The parent is trusted; the bound keeps a fault of its own from becoming ours. */
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
  const lanes = new Lanes(send)

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

  // A rejection rises and ends the process: its parent requeues what it held.
  const intake = new ModuleIntake((received) => void loadModule(received))

  const handle = (message: ToRunner): void | Promise<void> => {
    switch (message.type) {
      case 'open_lane':
        return lanes.open(message.lane)
      case 'run': {
        const compiled = modules.get(message.order.moduleKey)
        if (compiled === undefined) throw new Error('a run came before its module')
        return lanes.run(message.lane, message.order, compiled)
      }
      case 'recall':
        return lanes.recall(message.lane)
      case 'kill_lane':
        return lanes.kill(message.lane)
      case 'load_module':
        return intake.order(message.module)
      case 'guest_reply': {
        const { sequence, callId, reply } = message
        return lanes.reply(message.lane, { sequence, callId, reply })
      }
      case 'drop_module':
        modules.delete(message.moduleKey)
        return lanes.dropModule(message.moduleKey)
    }
  }

  const reader = new FrameReader(MAX_FRAME_BYTES, (kind, payload) => {
    if (kind === FRAME.module) return intake.take(payload)
    for (const message of JSON.parse(payload.toString()) as ToRunner[]) void handle(message)
    lanes.flush()
  })
  process.stdin.on('data', (chunk: Buffer) => reader.push(chunk))
  // The parent is gone, or wants us to leave: nobody waits for anything that runs here.
  process.stdin.on('end', () => process.exit(0))
  if (process.platform !== 'linux') {
    setInterval(() => send({ type: 'resident', residentBytes: process.memoryUsage.rss() }), RESIDENT_INTERVAL_MS)
  }
  send({ type: 'ready' })
}

confirmIsolation()
serveRunner()
