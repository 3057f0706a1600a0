/** The floor of every HTTP bench: `node:http` reads the body, parses it and answers. Nothing is stored. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    JSON.parse(Buffer.concat(chunks).toString('utf8'))
    response.writeHead(202, { 'content-length': '0' }).end()
  })
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
process.once('disconnect', () => process.exit(0))
