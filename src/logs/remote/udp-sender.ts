/** Datagrams to a remote log, one after the other. */
import type { Socket } from 'node:dgram';
import { dialUdp } from './dial.js';

export class UdpSender {
  private constructor(private readonly socket: Socket) {}

  /** Opens the socket. @throws EngineError as `dialUdp`. */
  static async open(host: string, port: number): Promise<UdpSender> {
    return new UdpSender(await dialUdp(host, port));
  }

  /**
   * Sends a datagram; resolves when the kernel has it. If the socket reports that an earlier one was refused, this one
   * is sent again.
   */
  async send(datagram: Buffer): Promise<void> {
    try {
      await this.#send(datagram);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
      await this.#send(datagram);
    }
  }

  close(): void {
    this.socket.close();
  }

  #send(datagram: Buffer): Promise<void> {
    return new Promise((resolve, reject) => this.socket.send(datagram, (error) => (error ? reject(error) : resolve())));
  }
}
