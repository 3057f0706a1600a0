import { expect, test } from 'vitest'
import { forgetRequests, recordRequest, sentRequests, turnPage } from './requests.ts'

const paths = () => sentRequests().map(({ method, path }) => `${method} ${path}`)
const send = (method: string, path: string) => recordRequest({ method, path, body: undefined })

test('a page that is visited again has the requests that its data came from', () => {
  send('GET', 'clients?limit=100')
  send('POST', 'clients')
  turnPage('/clients', '/channels')
  expect(paths()).toEqual([])
  send('GET', 'channels')
  turnPage('/channels', '/clients')
  expect(paths()).toEqual(['GET clients?limit=100'])
  send('GET', 'clients?limit=100')
  expect(paths()).toEqual(['GET clients?limit=100'])
  turnPage('/clients', '/channels')
  expect(paths()).toEqual(['GET channels'])
  forgetRequests()
  turnPage('/channels', '/clients')
  expect(paths()).toEqual([])
})

test('the pages of a long visit are forgotten, the oldest first', () => {
  forgetRequests()
  for (let at = 0; at < 60; at++) {
    send('GET', `page/${at}`)
    turnPage(`/page/${at}`, `/page/${at + 1}`)
  }
  turnPage('/page/60', '/page/0')
  expect(paths()).toEqual([])
  turnPage('/page/0', '/page/59')
  expect(paths()).toEqual(['GET page/59'])
})
