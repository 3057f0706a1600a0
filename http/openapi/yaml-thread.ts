/** Writes JSON texts as YAML, in a thread of its own. */
import { parentPort } from 'node:worker_threads'
import { stringify } from 'yaml'

parentPort?.on('message', ({ json }: { json: string }) => parentPort?.postMessage(stringify(JSON.parse(json))))
