/** The broker of the conformance profile as a process of its own, for a bench: `node conformance-broker.ts <port>`. */
import { ConformanceBackend, MqttServer } from '#api/adapters/mqtt/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { createStreamBudget } from '#core/streams/index.ts'

const server = await MqttServer.start({
  host: '127.0.0.1',
  port: Number(process.argv[2]),
  maxPacketBytes: 1024 * 1024,
  backend: (host) => new ConformanceBackend(host),
  budget: createStreamBudget(256 * 1024 * 1024),
  logger: createLogger({ name: 'bench', level: 'warn' }),
})
await server.listen()
