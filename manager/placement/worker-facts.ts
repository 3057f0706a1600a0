import type { WorkerFacts } from './worker-session.ts'

/** Facts for unit tests: a worker of the platform that runs core modules in one slot. */
export const WORKER_FACTS: WorkerFacts = {
  key: 1,
  id: 'w1',
  name: 'w1',
  domainId: null,
  labels: {},
  runtimes: ['core'],
  isPlatformOnly: false,
  memoryBytes: 2 ** 30,
  slots: 1,
  backlog: 10,
  isDraining: false,
  epoch: 1,
  cachedDigests: [],
  peerAddress: '',
}
