export { jobProcess } from './job-process.ts'
export { createJobQueue } from './job-queue.ts'
export { jobThread } from './job-thread.ts'
