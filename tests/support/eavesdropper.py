"""Somebody on the same machine who listens at ports: what do kernels say there?

usage: eavesdropper.py SECONDS PORT...   (prints what it hears)
"""

import sys
import time

import zmq

context = zmq.Context()
poller = zmq.Poller()
for port in sys.argv[2:]:
    ear = context.socket(zmq.SUB)
    ear.setsockopt(zmq.LINGER, 0)
    ear.setsockopt(zmq.SUBSCRIBE, b"")
    ear.connect(f"tcp://127.0.0.1:{port}")
    poller.register(ear, zmq.POLLIN)
print("listening", flush=True)
until = time.monotonic() + float(sys.argv[1])
while (left := until - time.monotonic()) > 0:
    for ear, _ in poller.poll(left * 1000):
        print(b" ".join(ear.recv_multipart()).decode(errors="replace"), flush=True)
