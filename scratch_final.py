import sys, time, traceback
sys.path[:0]=['benchmarks']
import flambeau as torch, gpu
from flambeau.backends.cuda import memory
from flambeau.backends.cuda import backend, uneven
def t(f,n=20):
    f(); torch.cuda.synchronize(); s=time.perf_counter()
    for _ in range(n): f()
    torch.cuda.synchronize(); return (time.perf_counter()-s)/n*1e3
torch.manual_seed(0)
x=torch.randn(16384,768,device='cuda').bfloat16(); w=torch.randn(50257,768,device='cuda').bfloat16()*.02
g=torch.randn(16384,50257,device='cuda').bfloat16()
try:
    r=(x[:64].float()@w.float().T); d=((x@w.T)[:64].float()-r).abs().max().item()
    r2=(g[:64].float()@w.float()); d2=((g@w)[:64].float()-r2).abs().max().item()/r2.abs().max().item()
    r3=(g.T[:64].float()@x.float()); d3=((g.T@x)[:64].float()-r3).abs().max().item()/r3.abs().max().item()
    print("errors",d,d2,d3,"ms",t(lambda: x@w.T),t(lambda: g@w),t(lambda: g.T@x))
    big=uneven.LARGE; uneven.LARGE=1<<60
    print("without ms",t(lambda: x@w.T,5),t(lambda: g@w,5),t(lambda: g.T@x,5)); uneven.LARGE=big
    a=[torch.randn(16,1024,768,device='cuda').bfloat16() for _ in range(3)]
    print("cat ms",t(lambda: torch.cat(a,2)))
except Exception: traceback.print_exc()
del x,w,g; torch.cuda.empty_cache()
rows={"mnist":(gpu.mnist,300),"nano":(lambda t: gpu.gpt(t,*gpu.NANO),30),"gpt2":(lambda t: gpu.gpt(t,*gpu.GPT2),10)}
for name,(make,n) in rows.items():
    try:
        memory.of(0).reset_peaks()
        b=torch.compile(make(torch)); l=[]
        t0=time.perf_counter(); l=[b().item() for _ in range(6)]; t1=time.perf_counter()-t0
        p=next(iter(b._compiled.plans.values()))[0].program
        print(name,"first 6 calls",f"{t1:.2f}s",l,"compiled ms",min(t(b,n) for _ in range(3)),"graph ms",t(p.graph.launch,n),"nodes",p.graph.size,f"{memory.of(0).most_reserved/2**30:.2f} GiB", p.refused, "quick", p.redirected is not None)
        del b,p; torch.cuda.empty_cache()
    except Exception: traceback.print_exc()
