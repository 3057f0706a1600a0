/** The express lane on a connection that Node's HTTP server serves, because something else came over it before. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ExpressLane } from './lane.ts'
import { expressLength, perform } from './lane.ts'

/** Takes the request if it is one for the lane; false: the router is to handle it. */
export function takeExpress(lane: ExpressLane, request: IncomingMessage, response: ServerResponse): boolean {
  if (request.method !== 'POST' || expressLength(lane, request) === undefined) return false
  const taken = lane.route.take(request)
  if (taken === undefined) return false
  let first: Buffer | undefined
  let rest: Buffer[] | undefined
  request.on('data', (chunk: Buffer) => {
    if (first === undefined) first = chunk
    else (rest ??= [first]).push(chunk)
  })
  request.on('end', () => {
    const body = rest === undefined ? (first ?? Buffer.alloc(0)) : Buffer.concat(rest)
    perform(lane, taken, body, (answer) => response.writeHead(answer.status, answer.headers).end(answer.body))
  })
  return true
}
