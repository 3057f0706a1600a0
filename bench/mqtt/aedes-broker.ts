/** aedes as a process of its own: `node aedes-broker.ts <port>`. */
import { createServer } from 'node:net'
import { Aedes } from 'aedes'

const broker = await Aedes.createBroker()
createServer(broker.handle).listen(Number(process.argv[2]), '127.0.0.1')
