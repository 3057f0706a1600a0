/**
 * A runner process: its main thread loads modules and passes messages on, its lanes run guests. It believes its parent
 * in everything and decides nothing: deadlines, memory and fairness are the parent's (`pool.ts`), because a process that
 * runs guest code cannot be trusted to watch itself.
 */
import type { CompiledComponent } from '../runtime/component.ts'
import type { CompiledModule } from '../runtime/core-module.ts'
import { compileModule } from './compile.ts'
import { Lanes } from './lanes.ts'
import type { FromRunner, ModuleOrder, ToRunner } from './messages.ts'

const RESIDENT_INTERVAL_MS = 100

function serveRunner(channel: NodeJS.Process): void {
  const modules = new Map<string, CompiledModule | CompiledComponent>()
  let outbox: FromRunner[] = []
  const send = (message: FromRunner) => {
    outbox.push(message)
    if (outbox.length > 1) return
    setImmediate(() => {
      const batch = outbox
      outbox = []
      channel.send?.(batch)
    })
  }
  const lanes = new Lanes(send)

  const loadModule = async (order: ModuleOrder): Promise<void> => {
    const { moduleKey } = order
    try {
      modules.set(moduleKey, await compileModule(order))
      send({ type: 'module_ready', moduleKey })
    } catch (error) {
      const reason = error instanceof RangeError ? 'oom' : 'module_invalid'
      send({ type: 'module_ready', moduleKey, reason, refused: error instanceof Error ? error.message : String(error) })
    }
  }

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
        return loadModule(message.module)
      case 'guest_reply': {
        const { sequence, callId, reply } = message
        return lanes.reply(message.lane, { sequence, callId, reply })
      }
      case 'drop_module':
        modules.delete(message.moduleKey)
        return lanes.dropModule(message.moduleKey)
    }
  }

  channel.on('message', (batch: ToRunner[]) => {
    // A rejection rises and ends the process: its parent requeues what it held.
    for (const message of batch) void handle(message)
    lanes.flush()
  })
  // The parent is gone: nobody waits for anything that runs here.
  channel.on('disconnect', () => process.exit(0))
  if (process.platform !== 'linux') {
    setInterval(() => send({ type: 'resident', residentBytes: process.memoryUsage.rss() }), RESIDENT_INTERVAL_MS)
  }
  send({ type: 'ready' })
}

serveRunner(process)
